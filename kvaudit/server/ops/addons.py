"""Runs the lab fleet beside ``kvaudit up``, so that a new installation has something to audit.

Three deployments of the lab are served on loopback, imported with their keys and plans, and audited
at once. Without it: ``--no-lab``. A failure here is said and leaves the product running.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from kvaudit.server.fleet.lab_keys import LAB_KEYS
from kvaudit.server.ops.egress import write_lab_ports
from kvaudit.server.ops.launch import LAB, Launch
from kvaudit.server.ops.one_shot import manage
from kvaudit.server.ops.process import Child
from kvaudit.server.ops.supervisor import StartFault, Stopped, Supervisor


@dataclass(frozen=True)
class Addon:
    """Something that is no part of the product: its children, and what to do while the web starts."""

    name: str
    children: Callable[[Launch], list[Child]]
    set_up: Callable[[Launch, Supervisor], None]


def _folder(launch: Launch) -> Path:
    return launch.state.folder / "lab"


def _fleet_file(launch: Launch) -> Path:
    """Written by the lab when all of its nodes answer."""
    return _folder(launch) / "fleet.json"


def _lab(launch: Launch) -> list[Child]:
    _fleet_file(launch).unlink(missing_ok=True)  # of an earlier start: the addresses may be others now
    lab_ports_file(launch).unlink(missing_ok=True)
    command = [sys.executable, "-m", "kvaudit.cli", "lab", "fleet", "--state", str(_folder(launch))]
    return [launch.child("lab", command, tier=LAB, grace=5.0)]


def _import_lab(launch: Launch, supervisor: Supervisor) -> None:
    lab = next(child for child in supervisor.children if child.name == "lab")
    try:
        supervisor.wait(lab, _fleet_file(launch).exists)
    except StartFault as fault:
        supervisor.progress.say(f"lab fleet: not imported, since {fault}")
        return
    write_lab_ports(lab_ports_file(launch), _fleet_file(launch))
    env = {**launch.env, **LAB_KEYS}  # fake keys, and only the import needs them
    done = manage(["lab_fleet", str(_fleet_file(launch))], env, supervisor.asked_to_stop)
    if done.stopped:
        raise Stopped
    said = (done.errors if done.code else done.out).strip().splitlines()
    supervisor.progress.say(f"lab fleet: {said[-1] if said else f'exit code {done.code}'}")


ADDONS: list[Addon] = [Addon("lab", _lab, _import_lab)]
"""Started in the tier LAB with every ``kvaudit up``; ``--no-NAME`` leaves one out."""


def lab_ports_file(launch: Launch) -> Path:
    """The lab's addresses, which the egress list leaves open while it is there (`EGRESS_LAB_FILE`)."""
    return launch.state.folder / "run" / "lab.ports"


def request_file(launch: Launch) -> Path:
    """The web writes it when somebody wishes for the extras that this start left out (`LAB_WISH_FILE`)."""
    return launch.state.folder / "run" / "lab.wish"


def fulfil(launch: Launch, supervisor: Supervisor, left_out: list[Addon]) -> None:
    """Start what was left out, once, when somebody has asked for it."""
    wish = request_file(launch)
    if not left_out or not wish.exists():
        return
    wish.unlink(missing_ok=True)
    supervisor.progress.say("the lab fleet was asked for on the page")
    while left_out:
        addon = left_out.pop()
        for child in addon.children(launch):
            supervisor.start(child)
        addon.set_up(launch, supervisor)
