"""What one node has open to somebody without a key, out of its answers and the routes that it lists. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kvaudit.auditor.checks.contract import Anonymous, NodeSeen
from kvaudit.auditor.engines import describe
from kvaudit.auditor.engines.descriptor import Surface
from kvaudit.auditor.readings import Exposure

MODELS, ROUTES = "/v1/models", "/openapi.json"

INFERENCE, SCALING = "inference routes need no key", "scaling routes need no key"
UNKNOWN_ROUTES = "routes that this kvaudit does not know need no key"


@dataclass(frozen=True, slots=True)
class Answered:
    """What one node gave to requests without a key: path -> answer, and the routes it lists (None
    where ``/openapi.json`` was not readable)."""

    node: NodeSeen
    answers: Mapping[str, Anonymous]
    routes: frozenset[str] | None


def routes(answer: Anonymous | None) -> frozenset[str] | None:
    """The routes that a readable ``/openapi.json`` lists; None when it is not readable or no such."""
    document = _json(answer)
    listed = document.get("paths") if document else None
    return frozenset(str(path) for path in listed) if isinstance(listed, dict) else None


def find(answered: Answered) -> list[Exposure]:
    """What is open on one node, worst first."""
    facts = answered.node.facts
    assert facts is not None
    surface = describe(facts.engine).surface
    exposures = _secrets(answered, surface) + _acting(answered, surface) + _beside_the_key(answered, surface)
    if _open(answered, MODELS):
        exposures.append(Exposure(INFERENCE, f"GET {MODELS}", "warn"))
    for path in surface.telling("version"):
        if "version" in (_json(answered.answers.get(path)) or {}):
            exposures.append(Exposure("the version can be read without a key", f"GET {path}", "warn"))
    for path in surface.telling("metrics"):
        if _shows_metrics(answered, path):
            exposures.append(Exposure("metrics can be read without a key", f"GET {path}", "warn"))
    return sorted(exposures, key=lambda exposure: exposure.severity != "fail")


def _secrets(answered: Answered, surface: Surface) -> list[Exposure]:
    found = []
    for path, answer in answered.answers.items():
        if answer.status == 200 and answer.exposed:
            names = ", ".join(sorted({name.rpartition(".")[2] for name in answer.exposed}))
            found.append(Exposure(f"{names} can be read in clear without a key", f"GET {path}", "fail"))
    for path in surface.telling("configuration"):
        if _open(answered, path) and not answered.answers[path].exposed:
            found.append(
                Exposure("the server's whole configuration can be read without a key", f"GET {path}", "warn")
            )
            break
    return found


def _acting(answered: Answered, surface: Surface) -> list[Exposure]:
    """Acting routes that no key guards: by what is listed, and by which keys the configuration shows as not set."""
    found = []
    acting = [
        path for path in _listed(answered, surface.acting) if _guarded(answered, path, surface) is False
    ]
    if acting:
        found.append(Exposure(f"routes that act are open: {', '.join(acting)}", f"GET {ROUTES}", "fail"))
    if scaling := _listed(answered, surface.scaling):
        found.append(Exposure(f"{SCALING}: {', '.join(scaling)}", f"GET {ROUTES}", "warn"))
    path, keys_set = _keys_set(answered, surface)
    if keys_set is False:
        keys = " nor ".join(surface.keys)
        what = f"routes that act ({surface.unlocked}) are open: neither {keys} is set"
        found.append(Exposure(what, f"GET {path}", "fail"))
    return found


def _keys_set(answered: Answered, surface: Surface) -> tuple[str, bool | None]:
    """Which path shows whether one of the engine's keys is set; None where no readable configuration names them all."""
    for path in surface.telling("configuration") if surface.keys else ():
        fields = _json(answered.answers.get(path))
        if fields and all(key in fields for key in surface.keys):
            return path, any(fields[key] is not None for key in surface.keys)
    return "", None


def _listed(answered: Answered, patterns: Sequence[str]) -> list[str]:
    """The listed routes that these patterns name, in the patterns' order."""
    routes = sorted(answered.routes or ())
    return [path for pattern in patterns for path in routes if _named(path, pattern)]


def _named(path: str, pattern: str) -> bool:
    return path.startswith(pattern[:-1]) if pattern.endswith("*") else path == pattern


def _guarded(answered: Answered, path: str, surface: Surface) -> bool | None:
    """Whether a key guards this path; None where the list of models does not show whether one is set."""
    if not path.startswith(surface.guarded):
        return False
    return True if _key_required(answered) else False if _open(answered, MODELS) else None


def _beside_the_key(answered: Answered, surface: Surface) -> list[Exposure]:
    """Routes outside the prefixes that the engine's key guards: completions, other inference, tokenizers, and what
    kvaudit does not know."""
    asks = _key_required(answered)
    exposures = [
        Exposure(
            f"{path} serves full completions without a key although /v1 asks for one",
            f"GET {ROUTES}, GET {MODELS}",
            "fail",
        )
        for path in _listed(answered, surface.completions)
        if asks
    ]
    for title, found in (
        (INFERENCE, _listed(answered, surface.inference) if asks else []),
        ("the tokenizer needs no key", _listed(answered, surface.tokenizers)),
        (UNKNOWN_ROUTES, _unknown_routes(answered, surface)),
    ):
        if found:
            exposures.append(Exposure(f"{title}: {', '.join(found[:12])}", f"GET {ROUTES}", "warn"))
    return exposures


def _unknown_routes(answered: Answered, surface: Surface) -> list[str]:
    known = (
        *surface.acting,
        *surface.inert,
        *surface.scaling,
        *surface.completions,
        *surface.inference,
        *surface.tokenizers,
    )
    if not surface.inert:
        return []
    return sorted(
        path for path in answered.routes or () if not any(_named(path, pattern) for pattern in known)
    )


def _key_required(answered: Answered) -> bool:
    answer = answered.answers.get(MODELS)
    return answer is not None and answer.status in (401, 403)


def _open(answered: Answered, path: str) -> bool:
    """200 with a JSON object: a login page that answers everything is not the engine."""
    answer = answered.answers.get(path)
    return answer is not None and answer.status == 200 and _json(answer) is not None


def _shows_metrics(answered: Answered, path: str) -> bool:
    answer = answered.answers.get(path)
    return answer is not None and answer.status == 200 and answer.body.lstrip()[:2] == b"# "


def _json(answer: Anonymous | None) -> dict[str, Any] | None:
    if answer is None or answer.status != 200:
        return None
    try:
        document = json.loads(answer.body)
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


def undecided_routes(answered: Answered, surface: Surface) -> list[str]:
    """Acting routes of which it is not told whether a key guards them."""
    name = answered.node.name
    unsure = [path for path in _listed(answered, surface.acting) if _guarded(answered, path, surface) is None]
    said = (
        [f"{name} lists {', '.join(unsure)}, and {MODELS} does not show whether a key is set"]
        if unsure
        else []
    )
    if surface.keys and _open(answered, MODELS) and _keys_set(answered, surface)[1] is None:
        said.append(
            f"{name} needs no key for inference, and no readable configuration shows whether one guards the "
            f"routes that act ({surface.unlocked})"
        )
    return said
