"""Turns `EngineFacts` into the JSON of a snapshot, with the digest that tells whether anything moved. Pure."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from typing import Any

from kvaudit.auditor.readings import EngineFacts, Fingerprint, Reading, fingerprint

READINGS = ("version", "model", "revision", "context", "pool", "input_limit", "role", "process")


def facts_as_json(facts: EngineFacts) -> dict[str, Any]:
    """Every reading as ``{value, source, state}``, under the names of `EngineFacts`; storable."""
    stored: dict[str, Any] = storable(_as_json(facts))
    return stored


def storable_fingerprint(facts: EngineFacts) -> Fingerprint:
    """The node's fingerprint as it survives the database."""
    return Fingerprint.from_json(storable(fingerprint(facts).as_json()))


def storable(value: Any) -> Any:
    """What PostgreSQL takes of what an engine said: it chooses the bytes, and jsonb knows neither NUL
    nor half a surrogate pair nor NaN."""
    if isinstance(value, str):
        return value.replace("\x00", "\ufffd").encode("utf-8", "replace").decode()
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Mapping):
        return {storable(str(key)): storable(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [storable(item) for item in value]
    return value if value is None or isinstance(value, bool | int) else storable(str(value))


def _as_json(facts: EngineFacts) -> dict[str, Any]:
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
            {"what": exposure.what, "where": exposure.where, "severity": exposure.severity}
            for exposure in facts.exposures
        ],
        "workers": sorted(
            ({"url": worker.url, "role": worker.role, "model": worker.model} for worker in facts.workers),
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
    return str(storable(str(reading.value)))[:longest] if reading.known else ""


def _value(item: Any) -> Any:
    if isinstance(item, dict):
        if set(item) == {"value", "source", "state"}:
            return [item["value"], item["state"]]
        return {name: _value(inner) for name, inner in item.items()}
    if isinstance(item, list):
        return [_value(inner) for inner in item]
    return item
