"""Every address that names something of a team is 404 to the administrator of another team, read or written.

A page whose rows are not made here fails, so that whoever adds an address thinks of strangers.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from django.test import Client
from django.urls import reverse
from django.utils import timezone

from kvaudit.server.accounts.models import ApiToken, Team, User
from kvaudit.server.checklists.models import Attestation, OwnItem
from kvaudit.server.inquiries.models import Export, LogImport, RequestLog, SavedView
from kvaudit.server.notify.services import create_channel, send_test
from tests.factories import a_user
from tests.server.checklists.claims import a_waiver, an_attestation
from tests.server.incidents.builders import an_incident
from tests.server.web import builders
from tests.server.web.addresses import PATTERNS

EVERYBODYS = {"library-incident", "library-export", "saved-view", "saved-view-remove"}
"""The library is public; a saved view is a question without its answers, and its owner's to remove."""


def rows_of(people: Any, pair: Any) -> dict[str, dict[str, Any]]:
    """Address name -> what it is called with, all of it the team's."""
    run = builders.a_run(pair, {"pool": "pass"})
    kept = builders.keep(run, b"{}")
    attested, plan = an_attestation(pair), builders.a_plan(pair)
    Attestation.objects.update(evidence_id=kept["sha256"])
    own = OwnItem.objects.create(team=people.team, key="K1", title="Ours", rule="As we say.")
    now = timezone.now()
    log = RequestLog.objects.create(
        deployment=pair, name="requests.csv", sha256="0" * 64, size=1, since=now - timedelta(days=1), until=now,
        lines=1, requests=1, in_window=1, inside=0,
    )  # fmt: skip
    work = LogImport.objects.create(
        deployment=pair, name="requests.csv", size=1, since=now - timedelta(days=1), until=now
    )
    by_prefix = {
        "run": {"pk": run.pk},
        "evidence": {"pk": run.pk, "sha256": kept["sha256"]},
        "plan": {"series": plan.series},
        "attestation": {"pk": attested.pk},
        "waiver": {"pk": a_waiver(pair).pk},
        "incident": {"pk": an_incident(pair).pk, "kind": "md"},
        "own-item": {"series": own.series, "slug": people.team.slug},
        "attest-team": {"slug": people.team.slug, "key": "D"},
        "waive-team": {"slug": people.team.slug, "key": "1"},
        "log-import": {"pk": work.pk, "slug": pair.slug},
        "settings-user": {"pk": people.operating_user.pk},
        "settings-team": {"slug": people.team.slug},
        "settings-token": {
            "pk": ApiToken.objects.create(
                owner=people.operating_user, name="ours", prefix="kva_1", digest="1", scopes=["read"]
            ).pk
        },
        "request-log": {"pk": log.pk, "slug": pair.slug},
        "history-export": {"pk": Export.objects.create(user=people.operating_user, kind="csv").pk},
        "settings-channel": a_test_message(people.team),
    }
    found: dict[str, dict[str, Any]] = {}
    for pattern in PATTERNS:
        wanted = pattern.pattern.converters
        if not wanted or pattern.name in EVERYBODYS:
            continue
        prefixes = [each for each in by_prefix if pattern.name == each or pattern.name.startswith(f"{each}-")]
        given = by_prefix[max(prefixes, key=len)] if prefixes else {}
        given = {"slug": pair.slug, "name": "timeline", "key": "D", **given}
        found[pattern.name] = {name: given[name] for name in wanted}
    return found


def rows_for(user: User, people: Any, pair: Any) -> dict[str, dict[str, Any]]:
    """`rows_of`, and with what every other address is called that names something; exports are the user's."""
    view = SavedView.objects.create(user=user, page="fleet", name="one", query="verdict=fail")
    found = rows_of(people, pair) | {
        "library-incident": {"name": "cloudbleed-2017"},
        "library-export": {"name": "cloudbleed-2017", "kind": "md"},
        "saved-view": {"key": view.key},
        "saved-view-remove": {"key": view.key},
    }
    export = Export.objects.create(user=user, kind="csv")
    return found | {name: {"pk": export.pk} for name in found if name.startswith("history-export")}


def a_test_message(team: Team) -> dict[str, Any]:
    """Of a channel of the team, which its administrators alone see."""
    channel, _ = create_channel(
        kind="email", name="ours", address="a@example.org", team=team, actor="system:tests"
    )
    return {"pk": channel.pk, "key": send_test(channel=channel, actor="system:tests").pk}


def test_a_stranger_finds_nothing(people, pair):
    offenders, unseen = [], []
    insider = Client()
    owner = a_user(team=people.team, role="admin")
    insider.force_login(owner)
    rows = rows_of(people, pair)
    Export.objects.update(user=owner)  # nobody else's, not even within the team
    for name, given in rows.items():
        address = reverse(name, kwargs=given)
        for method in ("get", "post"):
            answer = getattr(people.stranger, method)(address, {"act": "close", "confirm": "yes"})
            if answer.status_code not in (404, 405) and not redirects_home(name, answer):
                offenders.append((method, name, answer.status_code))
        if insider.get(address).status_code == 404:
            unseen.append(name)
    assert not offenders
    assert not unseen, "its rows are not made above, so nothing was shown about strangers"


def redirects_home(name: str, answer: Any) -> bool:
    """The part of a run that htmx asks for is no page: without htmx it leads to the run, which is 404."""
    return name == "run-progress" and answer.status_code == 302
