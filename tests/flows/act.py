"""Runs in a process of its own, as the application's database role: what people do in the active flow.

python -m tests.flows.act import FILE        the fleet file with its plans, and a channel that hears of fails
python -m tests.flows.act audit SLUG CHECKS  "Run passive checks", comma-separated; prints the run's id
python -m tests.flows.act pause SLUG
python -m tests.flows.act pages RUN...       everything that an auditor's browser would be sent, as one text
"""

import os
import sys
from pathlib import Path

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.flows.settings")
ACTOR = "system:flows"


def main(what, *rest):
    import django

    django.setup()
    return {"import": import_, "audit": audit, "pause": pause, "pages": pages}[what](*rest)


def import_(path):
    from kvaudit.server.accounts.models import Team
    from kvaudit.server.audits.schedule.defaults import add_file_plans
    from kvaudit.server.fleet.import_file import import_fleet
    from kvaudit.server.notify.services import create_channel

    outcome = import_fleet(Path(path).read_text(), "yaml", ACTOR, False, environment=os.environ)
    assert outcome.done, outcome.problems
    create_channel(
        name="on call",
        kind="webhook",
        team=Team.objects.get(slug="lab"),
        address="http://127.0.0.1:9/hook",  # nobody listens: the message waits
        events=["fail"],
        actor=ACTOR,
    )
    for imported in outcome.deployments:
        add_file_plans(deployment=imported.deployment, plans=imported.plans, actor=ACTOR)


def audit(slug, checks):
    from kvaudit.server.audits.services import audit_now
    from kvaudit.server.fleet.models import Deployment

    run = audit_now(deployment=Deployment.objects.get(slug=slug), actor=ACTOR, checks=checks.split(","))
    print(run.pk)


def pause(slug):
    from kvaudit.server.fleet.models import Deployment
    from kvaudit.server.fleet.services import pause_probes

    pause_probes(deployment=Deployment.objects.get(slug=slug), actor=ACTOR)


def pages(*runs):
    from django.test import Client

    from kvaudit.server.accounts.models import User
    from kvaudit.server.audits.models import Run, RunEvidence

    client = Client(SERVER_NAME="127.0.0.1")
    client.force_login(User.objects.get(username="admin"))
    User.objects.update(must_change_password=False)
    paths = ["/"]
    for run in Run.objects.filter(pk__in=runs).select_related("deployment"):
        paths += [f"/runs/{run.pk}/", f"/d/{run.deployment.slug}/"]
        kept = RunEvidence.objects.filter(run=run).order_by("-id").values_list("evidence_id", flat=True)
        paths += [f"/runs/{run.pk}/evidence/{name}/" for name in kept[:60]]
    for path in dict.fromkeys(paths):
        answer = client.get(path)
        assert answer.status_code == 200, (path, answer.status_code)
        print(answer.content.decode())


if __name__ == "__main__":
    main(*sys.argv[1:])
