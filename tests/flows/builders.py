"""Runs in a process of its own, as the application's database role: makes what a flow needs.

    python -m tests.flows.builders '{"deployments": {"glm": ["http://..."]}, "interval": 2}'

Prints ``{slug: deployment id}``; with ``"audit": true`` an "Run passive checks" of each is queued and rung.
"""

import json
import os
import sys

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "tests.flows.settings")


def main(wanted):
    import django

    django.setup()
    from kvaudit.server.accounts.models import Team
    from kvaudit.server.audits.services import PlanSpec, audit_now, create_plan
    from kvaudit.server.fleet.models import Deployment, Node

    team = Team.objects.get_or_create(slug="flows", defaults={"name": "flows"})[0]
    made = {}
    for slug, urls in wanted["deployments"].items():
        made[slug] = Deployment.objects.create(slug=slug, team=team)
        for number, url in enumerate(urls):
            Node.objects.create(deployment=made[slug], name=f"node-{number}", role="unified", url=url)
    checks = wanted.get("checks", ["pool", "version"])
    if "interval" in wanted:
        spec = PlanSpec(
            name=wanted.get("plan", "flow"),
            checks=checks,
            deployments=list(made.values()),
            interval=wanted["interval"],
            budget_seconds=wanted.get("budget_seconds"),
        )
        create_plan(spec=spec, actor="system:flows")
    if wanted.get("audit"):
        for deployment in made.values():
            audit_now(deployment=deployment, actor="system:flows", checks=checks)
    print(json.dumps({slug: deployment.pk for slug, deployment in made.items()}))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
