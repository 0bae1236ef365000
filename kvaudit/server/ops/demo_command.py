"""``kvaudit lab story``: finds this machine's database and lab, and plays the demo scenario there."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from kvaudit.server.ops.state import adopt_local_environment, default_state


def main(argv: Sequence[str]) -> int:
    """Exit 0 when the incident is closed, 1 with a sentence when it is not, 3 when there is nothing to tell."""
    parser = argparse.ArgumentParser(prog="kvaudit lab story")
    parser.add_argument("--state", type=Path, default=None, help="folder of the running product")
    parser.add_argument("--seconds", type=float, default=900.0, help="patience for each audit")
    chosen = parser.parse_args(argv)
    if chosen.state is not None:
        os.environ["KVAUDIT_STATE"] = str(chosen.state)
    adopt_local_environment()
    if not any(os.environ.get(name) for name in ("DATABASE_URL", "DATABASE_URL_FILE")):
        print(
            f"kvaudit lab story: nothing has run in {default_state()} yet: `make up` first.", file=sys.stderr
        )
        return 3
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "kvaudit.settings")
    import django

    django.setup()
    from kvaudit.server.ops.demo_scenario import ScenarioFault, play

    folder = (chosen.state or default_state()) / "lab"
    try:
        closed = play(lab=folder, say=lambda sentence: print(sentence, flush=True), seconds=chosen.seconds)
    except ScenarioFault as fault:
        print(f"kvaudit lab story: {fault}", file=sys.stderr)
        return 1
    print(f"Read it at /incidents/{closed.pk}/.")
    return 0
