"""``manage.py lab_fleet FILE``: the lab's deployments become deployments like any other, once.

Called by ``kvaudit up`` at every start. A deployment that somebody retired stays retired, and one whose
addresses are the known ones is left as its owner made it since.
"""

from __future__ import annotations

import json
import os
from argparse import ArgumentParser
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from kvaudit.server.audits.schedule import dispatch
from kvaudit.server.audits.schedule.defaults import NIGHTLY, missing_for
from kvaudit.server.audits.services import audit_now
from kvaudit.server.fleet.models import Deployment, Node
from kvaudit.server.ops.management.commands.fleet import import_and_plan

ACTOR = "command:lab_fleet"


class Command(BaseCommand):
    help = "Imports the lab's fleet file and audits what is new in it, with prompts where consent was given."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("file", type=Path, help="fleet.json of `kvaudit lab fleet`")

    def handle(self, *args: Any, **options: Any) -> None:
        document = json.loads(options["file"].read_text(encoding="utf-8"))
        document["deployments"] = [
            deployment for deployment in document["deployments"] if _wanted(deployment)
        ]
        if not document["deployments"]:
            self.stdout.write("known already")
            return
        outcome = import_and_plan(
            json.dumps(document).encode(), "yaml", False, actor=ACTOR, environment=os.environ
        )
        if outcome.problems:
            raise CommandError("; ".join(map(str, outcome.problems)), returncode=3)
        for imported in outcome.deployments:
            assert imported.deployment is not None
            lacking = {gap.check for gap in missing_for(imported.deployment)}
            checks = [check for check in NIGHTLY if check not in lacking]
            if imported.new and checks:
                audit_now(deployment=imported.deployment, actor=ACTOR, checks=checks)
        dispatch.dispatch()  # plans that are due at once need not wait for beat
        slugs = ", ".join(imported.slug for imported in outcome.deployments)
        self.stdout.write(f"imported {slugs}; their first audits run now")


def _wanted(described: Mapping[str, Any]) -> bool:
    """Whether this deployment is unknown or has moved."""
    known = Deployment.objects.filter(slug=described["slug"]).first()
    if known is None:
        return True
    if known.retired_at is not None:
        return False
    urls = set(Node.objects.current().filter(deployment=known).values_list("url", flat=True))
    return known.entry != described["entry"] or urls != {node["url"] for node in described["nodes"]}
