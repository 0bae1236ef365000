"""Turns a declared session API into stored JSON, and back. The file that declared it was checked when it was
read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kvaudit.auditor.checks.session.api import SessionPlan


def as_json(plan: SessionPlan | None) -> dict[str, Any]:
    """{} for none."""
    if plan is None:
        return {}
    return {
        "url": plan.url,
        # Pairs, not objects: the database does not keep the order of an object's keys.
        "steps": [
            [name, [[step.method, step.path, step.body, list(map(list, step.capture))] for step in steps]]
            for name, steps in plan.steps
        ],
        "pool_path": plan.pool_path,
        "pool": list(map(list, plan.pool)),
        "largest": plan.largest,
        "wait": plan.wait,
        "without": sorted(plan.without),
    }


def from_json(stored: Mapping[str, Any]) -> SessionPlan | None:
    """What `as_json` wrote."""
    if not stored:
        return None
    from kvaudit.auditor.checks.session.api import SessionPlan, Step

    return SessionPlan(
        url=stored["url"],
        steps=tuple(
            (
                name,
                tuple(
                    Step(method, path, body, tuple((key, pointer) for key, pointer in capture))
                    for method, path, body, capture in steps
                ),
            )
            for name, steps in stored["steps"]
        ),
        pool_path=stored["pool_path"],
        pool=tuple((key, pointer) for key, pointer in stored["pool"]),
        largest=stored["largest"],
        wait=stored["wait"],
        without=frozenset(stored["without"]),
    )
