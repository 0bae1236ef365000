"""The machines that kvaudit itself runs on: whose clock is wrong, whose disk is full. For people who run it."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from django.conf import settings

from kvaudit.server import clock, disk
from kvaudit.server.accounts.access import can_somewhere
from kvaudit.server.accounts.models import User
from kvaudit.server.audits.execution import worker_clocks


def may_see(user: User) -> bool:
    """Whether the state of the machines is the user's business."""
    return can_somewhere(user, "run_audits")


def troubles(user: User) -> list[str]:
    """Sentences, the worst first; none for who could do nothing about it. One query."""
    if not may_see(user):
        return []
    workers = sorted(worker_clocks.recent(), key=lambda worker: -abs(worker.skew))
    found = [said for worker in workers if (said := worker_clocks.sentence(worker))]
    if abs(off := clock.skew()) >= clock.NOTABLE:
        found.append(
            f"The clock of the machine that serves these pages is {clock.in_words(off)} compared with the database's: "
            "put it right. Verdicts and expiries go by the database's; ages on pages are off by as much."
        )
    if (room := room_of_state()) is not None and (said := disk.sentence(room)):
        found.insert(0, said)
    return found


def room_of_state() -> disk.Room | None:
    """The room of the state folder's disk, where all of it is one machine (`kvaudit up`)."""
    return disk.room(Path(settings.STATE_FOLDER)) if settings.STATE_FOLDER else None


def clocks_in_words() -> tuple[str, bool]:
    """(how the clocks of workers and of this machine stand, whether something is wrong)."""
    workers = worker_clocks.recent()
    wrong = [worker for worker in workers if abs(worker.off) >= clock.NOTABLE]
    own = clock.skew()
    said = [
        f"{worker.name}: {clock.in_words(worker.off)}{', takes no work' if worker.refuses else ''}"
        for worker in wrong
    ]
    if abs(own) >= clock.NOTABLE:
        said.append(f"this page's machine: {clock.in_words(own)}")
    if said:
        return "; ".join(said), True
    if not workers:
        return "no worker was heard of within 10 minutes", True
    most = max((abs(worker.off) for worker in workers), default=timedelta(0))
    count = f"{len(workers)} worker{'' if len(workers) == 1 else 's'}"
    return f"{count}, at most {most.total_seconds():.1f} s off", False
