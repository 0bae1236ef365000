"""`EngineFacts` as the JSON of a snapshot, and the digest that tells whether anything moved. Pure."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from kvaudit.readings import EngineFacts, Reading

READINGS = ("version", "model", "revision", "context", "pool", "input_limit", "role", "process")


def facts_as_json(facts: EngineFacts) -> dict[str, Any]:
    """Every reading as ``{value, source, state}``, under the names of `EngineFacts`."""
    return {
        "engine": facts.engine,
        "kind": facts.kind,
        **{name: getattr(facts, name).as_report() for name in READINGS},
        "ranks": [
            {
                "rank": rank.rank,
                "pool": rank.pool.as_report(),
                "sliding_window": rank.sliding_window.as_report() if rank.sliding_window else None,
            }
            for rank in facts.ranks
        ],
        "settings": {name: reading.as_report() for name, reading in sorted(facts.settings.items())},
        "conditions": dict(sorted(facts.conditions.items())),
        "features": dict(sorted(facts.features.items())),
        "components": dict(sorted(facts.components.items())),
        "exposures": [
            {"what": each.what, "where": each.where, "severity": each.severity} for each in facts.exposures
        ],
        "workers": sorted(
            ({"url": each.url, "role": each.role, "model": each.model} for each in facts.workers),
            key=lambda worker: (worker["url"], worker["role"]),
        ),
        "notes": list(facts.notes),
    }


def content_digest(stored: dict[str, Any]) -> str:
    """SHA-256 (hex) over what was read, without where it was read and without notes: two readings
    with the same content share one snapshot."""
    values = {name: _value(item) for name, item in stored.items() if name != "notes"}
    body = json.dumps(values, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(body.encode()).hexdigest()


def shown(reading: Reading[Any], longest: int = 300) -> str:
    """A reading's value as text for a column, "" when unknown."""
    return str(reading.value)[:longest] if reading.known else ""


def _value(item: Any) -> Any:
    if isinstance(item, dict):
        if set(item) == {"value", "source", "state"}:
            return [item["value"], item["state"]]
        return {name: _value(inner) for name, inner in item.items()}
    if isinstance(item, list):
        return [_value(inner) for inner in item]
    return item
