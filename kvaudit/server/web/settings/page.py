"""Settings: every setting in one line, with its state now. What a reader may not open is named all the same,
so that they know whom to ask."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from django.db.models import Count, Q
from django.urls import reverse
from django.utils.text import get_text_list

from kvaudit.auditor.verdict import Verdict
from kvaudit.server.accounts.access import can, can_somewhere
from kvaudit.server.accounts.models import ApiToken, Team, User, managed_users
from kvaudit.server.audits.models import Plan
from kvaudit.server.checklists.models import OwnItem
from kvaudit.server.fleet.key_overview import closed_keys
from kvaudit.server.fleet.models import Deployment, Pause, Tenant
from kvaudit.server.fleet.pins import PinState
from kvaudit.server.notify.channels import KINDS
from kvaudit.server.notify.models import Channel, Delivery, OutboxMessage
from kvaudit.server.web.kit import times
from kvaudit.server.web.kit.parts import machines
from kvaudit.server.web.settings.ledger import page as ledger
from kvaudit.server.web.settings.pins import page as pins


@dataclass(frozen=True, slots=True)
class SettingLine:
    """One setting. ``address`` is "" where the reader may not open it; ``state`` then says who may."""

    name: str
    about: str
    state: str
    address: str = ""
    attention: bool = False  # something about it needs somebody's hand


@dataclass(frozen=True, slots=True)
class Group:
    name: str
    lines: Sequence[SettingLine]


def groups(user: User, now: datetime) -> list[Group]:
    """All settings, in a fixed number of queries."""
    return [
        Group(
            "Fleet", [_inventory(user), _keys(user), _pins(user), _plans(user), _probes(user), _items(user)]
        ),
        Group("People and messages", [_channels(user, now), _users(user), _teams(user), _tokens(user, now)]),
        Group("Record", [_ledger(user, now)]),
        Group("Machines", [_clocks(user), _disk(user)]),
        Group("Yours", [_account(user), _zone(user), _password()]),
    ]


def _inventory(user: User) -> SettingLine:
    count = Deployment.objects.visible_to(user).active().count()
    may = can_somewhere(user, "edit_fleet")
    return SettingLine(
        "Inventory import",
        "Deployments, nodes, tenants and limits, from a fleet file (YAML or CSV); shows what would change first.",
        f"{_n(count, 'deployment')}{'' if may else '; imported by operators'}",
        reverse("fleet-import") if may else "",
    )


def _keys(user: User) -> SettingLine:
    if not can_somewhere(user, "edit_fleet"):
        return SettingLine(
            "Tenants' keys", _KEYS, "Set by operators of the deployment's team.", reverse("settings-keys")
        )
    current = Q(deployment__in=Deployment.objects.where_can(user, "edit_fleet").active())
    found = (
        Tenant.objects.current()
        .filter(current)
        .aggregate(all=Count("pk"), without=Count("pk", filter=Q(credential_sealed="")))
    )
    state = _n(found["all"], "tenant")
    if found["without"]:
        state += f"; {found['without']:,} without a key, so nothing is asked in their name"
    if closed := closed_keys(Tenant.objects.current().filter(current)):
        state += f"; the keys of {closed:,} do not open with the ENCRYPTION_KEYS that kvaudit has"
    attention = bool(found["without"] or closed)
    return SettingLine("Tenants' keys", _KEYS, state, reverse("settings-keys"), attention=attention)


_KEYS = (
    "With which active checks ask in tenants' names; write-only. Set on a deployment's page, under Keys of tenants "
    "and nodes."
)


def _pins(user: User) -> SettingLine:
    rows = pins.all_rows(user)
    return SettingLine(
        "Version pins",
        "The versions of an engine that policy allows, for the fleet and for single deployments.",
        pins.pins_in_words(rows),
        reverse("settings-pins"),
        attention=any(row.state is not PinState.MET for row in rows),
    )


def _plans(user: User) -> SettingLine:
    found = Plan.objects.current().visible_to(user).aggregate(
        all=Count("pk", distinct=True), off=Count("pk", distinct=True, filter=Q(enabled=False))
    )  # fmt: skip
    state = _n(found["all"], "plan") + _off(found["off"])
    if not found["all"]:
        state = "none, so nothing is audited by itself"
    return SettingLine(
        "Plans",
        "Which checks run where and when: schedule, windows, budgets.",
        state,
        reverse("plans"),
        attention=found["all"] == found["off"],
    )


def _probes(user: User) -> SettingLine:
    seen = Deployment.objects.visible_to(user).active()
    found = (
        Pause.objects.current()
        .filter(Q(deployment=None) | Q(deployment__in=seen))
        .aggregate(fleet=Count("pk", filter=Q(deployment=None)), some=Count("deployment"))
    )
    several = f"{_n(found['some'], 'deployment')} paused"
    state = "paused everywhere" if found["fleet"] else several if found["some"] else "not paused"
    return SettingLine(
        "Pause of active checks",
        "Stops every check that sends prompts before its next request.",
        state,
        f"{reverse('plans')}#probes",
        attention=bool(found["fleet"] or found["some"]),
    )


def _items(user: User) -> SettingLine:
    count = OwnItem.objects.visible_to(user).current().count()
    return SettingLine(
        "Checklist items",
        "What deployments are held to: the shipped items and teams' own.",
        f"{_n(count, 'own item')} beside the shipped ones",
        reverse("checklist"),
    )


def _channels(user: User, now: datetime) -> SettingLine:
    kinds = get_text_list([kind.several for kind in KINDS.values()], "and")
    about = f"Where messages about fails, errors, overdue audits and expiring waivers go: {kinds}."
    if not can_somewhere(user, "manage_channels"):
        return SettingLine("Channels", about, "Managed by administrators.")
    mine = Channel.objects.visible_to(user).order_by()
    found = mine.aggregate(all=Count("pk"), off=Count("pk", filter=Q(enabled=False)))
    tried = OutboxMessage.objects.filter(channel__in=mine).exclude(state=Delivery.PENDING, last_problem="")
    last = tried.order_by("-created_at").values("state", "sent_at", "created_at").first()
    if not found["all"]:
        return SettingLine(
            "Channels",
            about,
            "alerts are off: no channel configured",
            reverse("settings-channels"),
            attention=True,
        )
    state = _n(found["all"], "channel") + _off(found["off"])
    failed = last is not None and last["state"] != Delivery.SENT
    if last is None:
        state += "; nothing was sent yet"
    elif failed:
        state += f"; last message {times.ago(last['created_at'], now)} not delivered"
    else:
        state += f"; last delivered {times.ago(last['sent_at'] or last['created_at'], now)}"
    return SettingLine("Channels", about, state, reverse("settings-channels"), attention=failed)


def _users(user: User) -> SettingLine:
    about = "Who may log in, and what they may do in which team."
    if not can_somewhere(user, "manage_accounts"):
        return SettingLine("Users and roles", about, "Managed by administrators.")
    count = managed_users(user).filter(is_active=True).count()
    return SettingLine("Users and roles", about, _n(count, "active user"), reverse("settings-users"))


def _teams(user: User) -> SettingLine:
    count = Team.objects.visible_to(user).count()
    about = "Who answers for which deployments, and who decides about their waivers."
    return SettingLine("Teams", about, _n(count, "team"), reverse("settings-teams"))


def _tokens(user: User, now: datetime) -> SettingLine:
    count = ApiToken.objects.visible_to(user).usable(now).count()
    own = "" if can(user, "manage_tokens") else " of your own"
    return SettingLine(
        "API tokens",
        "For the gate and for programs that read results; shown once, revocable.",
        f"{_n(count, 'usable token')}{own}",
        reverse("settings-tokens"),
    )


def _ledger(user: User, now: datetime) -> SettingLine:
    about = "The append-only record of every act, each entry chained to the one before."
    if not can(user, "view_ledger"):
        return SettingLine("Ledger", about, "Read by auditors of every team.")
    state = ledger.state_of(user, now)
    verdict = state.verdict
    attention = verdict is not None and verdict is not Verdict.PASS
    return SettingLine("Ledger", about, state.sentence, reverse("settings-ledger"), attention=attention)


def _clocks(user: User) -> SettingLine:
    about = (
        "How far machines that audit are off from the database's time; one that is 60 s off takes no work."
    )
    if not machines.may_see(user):
        return SettingLine("Clocks", about, "Looked after by operators.")
    state, wrong = machines.clocks_in_words()
    return SettingLine("Clocks", about, state, attention=wrong)


def _disk(user: User) -> SettingLine:
    about = "Room for everything that kvaudit keeps."
    if not machines.may_see(user):
        return SettingLine("Disk", about, "Looked after by operators.")
    if (room := machines.room_of_state()) is None:
        return SettingLine("Disk", about, "not known here: look at the machine of the database")
    return SettingLine("Disk", about, f"{room.in_words()} free", attention=room.low)


def _account(user: User) -> SettingLine:
    return SettingLine(
        "Account",
        "Your roles, and where to change the rest.",
        user.get_username(),
        reverse("settings-account"),
    )


def _zone(user: User) -> SettingLine:
    return SettingLine("Time zone", "In which pages show times to you.", user.zone, reverse("zone"))


def _password() -> SettingLine:
    return SettingLine("Password", "Yours.", "at least 12 characters", reverse("password-change"))


def _n(count: int, one: str, many: str = "") -> str:
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def _off(count: int) -> str:
    return f", {count:,} switched off" if count else ""
