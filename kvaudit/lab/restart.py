"""``kvaudit lab restart``: a deployment of the demo fleet is given another engine while the fleet runs.

The fleet's process looks for a wish in its folder, restarts that deployment at the same addresses with another engine,
and answers in a second file. ``kvaudit lab story``, which needs a database, is another package's command, found by its
entry point: the lab itself knows nothing of it.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

WISH, ANSWER = "restart.json", "restarted.json"
GLANCE = 0.5  # seconds

Restart = Callable[[str, str], Awaitable[dict[str, Any]]]


async def follow(state: Path, restart: Restart) -> None:
    """Carry out requests for a restart until cancelled. Such a wish is ``{id, slug, fault}``; the answer
    repeats the id and holds what the deployment is now, or the problem."""
    for name in (WISH, ANSWER):
        (state / name).unlink(missing_ok=True)
    while True:
        await asyncio.sleep(GLANCE)
        wish = _read(state / WISH)
        if wish is None:
            continue
        (state / WISH).unlink(missing_ok=True)
        answer: dict[str, Any] = {"id": wish.get("id")}
        try:
            answer["described"] = await restart(str(wish["slug"]), str(wish["fault"]))
        except (KeyError, ValueError, OSError) as problem:
            answer["problem"] = f"The lab cannot do that: {problem}"
        write_whole(state / ANSWER, answer)


def wish(state: Path, *, identity: str, slug: str, fault: str) -> None:
    """Ask the fleet's process to restart ``slug`` with ``fault`` (``healthy`` is the fix)."""
    (state / ANSWER).unlink(missing_ok=True)
    write_whole(state / WISH, {"id": identity, "slug": slug, "fault": fault})


def answered(state: Path, identity: str) -> dict[str, Any] | None:
    """The answer to this wish, once it is there."""
    found = _read(state / ANSWER)
    return found if found is not None and found.get("id") == identity else None


def write_whole(path: Path, document: dict[str, Any]) -> None:
    """Renamed into place: a reader never sees half of it."""
    aside = path.with_suffix(".new")
    aside.write_text(json.dumps(document), encoding="utf-8")
    aside.rename(path)


def _read(path: Path) -> dict[str, Any] | None:
    with suppress(OSError, ValueError):
        found = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(found, dict):
            return found
    return None


def restart_command(state: str, slug: str, fault: str, *, seconds: float) -> int:
    """Ask for the restart, wait, and print what the deployment is now as one line of JSON. Raises ValueError with a
    sentence when the fleet does not answer or cannot do it."""
    identity, folder = str(uuid4()), Path(state)
    wish(folder, identity=identity, slug=slug, fault=fault)
    ends = time.monotonic() + seconds
    while (answer := answered(folder, identity)) is None:
        if time.monotonic() > ends:
            raise ValueError(f"the lab in {folder} does not restart {slug}: is its fleet running?")
        time.sleep(GLANCE / 2)
    if "problem" in answer:
        raise ValueError(str(answer["problem"]))
    print(json.dumps(answer["described"]))
    return 0


def command(arguments: Sequence[str]) -> int:
    """Hand over to the story of the installed product; exit 3 with a sentence when there is none."""
    from importlib.metadata import entry_points

    for entry in entry_points(group="kvaudit.commands", name="lab-story"):
        told: int = entry.load()(arguments)
        return told
    raise ValueError("the story needs the whole product: pip install 'kvaudit[server,lab]' and `kvaudit up`")
