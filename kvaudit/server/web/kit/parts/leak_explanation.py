"""Why a small prefill pool leaks, in a sentence with the numbers of one deployment.

The pool check says what is too small, the version check which bug a build has, the active checks what came of it;
whoever is called at night must read in one place how these belong together.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kvaudit.auditor import checks
from kvaudit.auditor.verdict import Verdict
from kvaudit.server.audits.models import Result
from kvaudit.server.incidents.library import shipped_documents
from kvaudit.server.web.kit.measure_values import rows, tokens

ADVISORY = "KVA-001"
PUBLISHED = "workers-ai-glm-5-3-2026"
"""Of the library's incidents the one that came about this way."""

SHOWING = checks.where("shows", "outcome")
"""Checks whose *critical* fail is what comes of it."""

_OUTCOMES = ("applies", "undecided", "possible")


@dataclass(frozen=True, slots=True)
class SeenLeaking:
    """Where it was seen to happen."""

    check: str
    run: int


@dataclass(frozen=True, slots=True)
class Mechanism:
    """``sentence`` names advisories by their ids; pages link those."""

    sentence: str
    shown: Sequence[SeenLeaking] = ()

    @property
    def published(self) -> Any:
        """The library's document of the same mechanism."""
        return next((document for document in shipped_documents() if document.id == PUBLISHED), None)


def mechanism_of(results: Iterable[Result]) -> Mechanism | None:
    """From the last result of each check of a deployment. None where the pool check shows no danger zone of a prefill
    side: what is said of the hand-over to decode would not apply."""
    last = {result.check_id: result for result in results}
    zone = _zone(_measures(last.get("pool")))
    if zone is None:
        return None
    return Mechanism(
        sentence=f"Prefill refuses prompts from {zone[0]:,} tokens on, the door lets in up to {zone[1] - 1:,}. "
        f"In between, {_build(last.get('version'))}: one page arrives, and decode reads pages that other requests "
        "left behind.",
        shown=[
            SeenLeaking(name, last[name].run_id) for name in SHOWING if name in last and _critical(last[name])
        ],
    )


def mechanism_until(deployment: int, run: int) -> Mechanism | None:
    """As it was known of a deployment when a run (its id) was asked for. One query."""
    wanted = [
        Result.objects.filter(deployment_id=deployment, check_id=name, run_id__lte=run).order_by("-id")[:1]
        for name in ("pool", "version", *SHOWING)
    ]
    return mechanism_of(wanted[0].union(*wanted[1:], all=True))


def _zone(pool: Mapping[str, Any]) -> tuple[int, int] | None:
    """[first length that prefill refuses, first that the door refuses), in tokens."""
    zone = pool.get("danger_zone")
    if not isinstance(zone, list) or len(zone) != 2:
        return None
    low, high = tokens(zone[0]), tokens(zone[1])
    if low is None or high is None or low >= high:
        return None
    return (low, high) if any(row.get("role") == "prefill" for row in rows(pool.get("nodes"))) else None


def _build(version: Result | None) -> str:
    """What the builds that were read do with a prompt that prefill has refused."""
    builds = rows(_measures(version).get("builds"))
    found = {
        str(row.get("outcome"))
        for build in builds
        for row in rows(build.get("advisories"))
        if row.get("id") == ADVISORY
    }
    outcome = next((word for word in _OUTCOMES if word in found), "")
    if outcome == "applies":
        return f"this build still runs the refused prompt ({ADVISORY})"
    if outcome:
        return f"this build may still run the refused prompt ({ADVISORY}, which could not be ruled out)"
    if builds:
        return f"a build with the bug of {ADVISORY}, which is not known of this one, would still run the refused prompt"
    return f"a build without the fix of {ADVISORY} still runs the refused prompt"


def _critical(result: Result) -> bool:
    return Verdict.parse(result.verdict) is Verdict.FAIL and result.severity == "critical"


def _measures(result: Result | None) -> Mapping[str, Any]:
    return result.measures if result is not None and isinstance(result.measures, dict) else {}
