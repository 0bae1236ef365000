"""Makes, changes (by a new version) and retires a team's own items."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, fields

from django.db import transaction

from kvaudit.auditor import checks as known_checks
from kvaudit.server import clock
from kvaudit.server.accounts.access import require
from kvaudit.server.accounts.actors import Actor
from kvaudit.server.accounts.models import Team, User
from kvaudit.server.audits.evidence.canonical import clean_text
from kvaudit.server.checklists.items import DISAGGREGATED, UNIFIED, shipped, shipped_keys
from kvaudit.server.checklists.models import OwnItem
from kvaudit.server.ledger.chain import digest_of
from kvaudit.server.ledger.services import record

MOST_PER_TEAM = 20
"""Columns of a matrix that somebody still reads."""

_KEY = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,11}\Z")


class ItemProblem(ValueError):
    """An item that cannot be; the text is a sentence for the person who wrote it."""


@dataclass(frozen=True, slots=True)
class ItemSpec:
    """All that an own item says."""

    key: str
    title: str
    rule: str
    checks: Sequence[str] = ()
    attestable: bool = True
    applies_to: str = ""
    remedy: str = ""
    standard: str = ""
    standard_version: str = ""
    requirement: str = ""
    requirement_text: str = ""

    def problem(self) -> str:
        """ "" or a sentence."""
        if not _KEY.match(self.key):
            return "The key is 1 to 12 letters, digits and hyphens and begins with a letter, for instance K1."
        if self.key in shipped_keys():
            return f"{self.key} is an item of the shipped checklist: choose another key."
        if not self.title.strip() or not self.rule.strip():
            return "An item needs a title and a rule."
        unknown = [check for check in self.checks if check not in _checks()]
        if unknown:
            return f"There is no check called {unknown[0]!r}: the checks are {', '.join(_checks())}."
        if not self.checks and not self.attestable:
            return "An item needs a check or must be open to attestation: nothing else could ever meet it."
        if self.applies_to not in ("", DISAGGREGATED, UNIFIED):
            return f"An item is for every deployment, or for {DISAGGREGATED} or {UNIFIED} ones."
        return ""


@transaction.atomic
def create_item(*, team: Team, spec: ItemSpec, actor: Actor) -> OwnItem:
    """Hold the team's deployments to one more item from now on. Raises ItemProblem, PermissionDenied."""
    require(actor, "edit_checklists", team)
    _check(spec)
    if len(spec.key) == 1:
        # The next version of the shipped checklist may take it, and one key would stand for two items.
        raise ItemProblem(
            f"One letter alone is for the shipped checklist: choose a longer key, like {spec.key}1."
        )
    Team.objects.select_for_update(no_key=True).get(pk=team.pk)
    held = OwnItem.objects.current().filter(team=team)
    if held.filter(key=spec.key).exists():
        raise ItemProblem(f"{team.slug} already has an item {spec.key}.")
    if held.count() >= MOST_PER_TEAM:
        raise ItemProblem(f"A team has at most {MOST_PER_TEAM} items of its own: retire one first.")
    item = OwnItem.objects.create(team=team, created_by=_user(actor), **_columns(spec))
    _record(item, actor, "item.made")
    return item


@transaction.atomic
def change_item(*, item: OwnItem, spec: ItemSpec, actor: Actor) -> OwnItem:
    """The next version of an item; past moments go on being judged by the version of their time. The
    key stays, since attestations and waivers name it. Raises ItemProblem, PermissionDenied."""
    require(actor, "edit_checklists", item.team)
    _check(spec)
    if spec.key != item.key:
        raise ItemProblem("The key of an item stays: retire this one and make another.")
    open_now = OwnItem.objects.select_for_update(of=("self",)).filter(series=item.series, valid_to=None)
    old = open_now.first()
    if old is None:
        raise ItemProblem("This item was retired: make a new one.")
    now = clock.now()
    old.valid_to = now
    old.save(update_fields=["valid_to"])
    made = OwnItem.objects.create(
        team=old.team,
        series=old.series,
        version=old.version + 1,
        valid_from=now,
        created_by=_user(actor),
        **_columns(spec),
    )
    _record(made, actor, "item.changed")
    return made


@transaction.atomic
def retire_item(*, item: OwnItem, actor: Actor) -> None:
    """From now on the team's deployments are not held to it; what was stays on record."""
    require(actor, "edit_checklists", item.team)
    open_now = OwnItem.objects.select_for_update(of=("self",)).filter(series=item.series, valid_to=None)
    if (old := open_now.first()) is None:
        return
    old.valid_to = clock.now()
    old.save(update_fields=["valid_to"])
    _record(old, actor, "item.retired")


def spec_of(item: OwnItem) -> ItemSpec:
    """What the item says now, for a form."""
    return ItemSpec(**{field.name: getattr(item, field.name) for field in fields(ItemSpec)})


def checks_to_choose() -> tuple[str, ...]:
    """Checks that an item may rest on: those of this build, and those that the shipped items name."""
    return _checks()


def _checks() -> tuple[str, ...]:
    named = [check for item in shipped().items for check in item.checks]
    return tuple(dict.fromkeys([*known_checks.MODULES, *named]))


def _check(spec: ItemSpec) -> None:
    if sentence := spec.problem():
        raise ItemProblem(sentence)


def _columns(spec: ItemSpec) -> dict[str, object]:
    longest = {"title": 120, "rule": 2_000, "remedy": 2_000, "standard": 100, "standard_version": 40}
    longest |= {"requirement": 100, "requirement_text": 4_000}
    found: dict[str, object] = {
        name: clean_text(getattr(spec, name).strip(), most) for name, most in longest.items()
    }
    chosen = [check for check in _checks() if check in spec.checks]
    return found | {
        "key": spec.key,
        "checks": chosen,
        "attestable": spec.attestable,
        "applies_to": spec.applies_to,
    }


def _user(actor: Actor) -> User | None:
    return actor if isinstance(actor, User) else None


def _record(item: OwnItem, actor: Actor, kind: str) -> None:
    said = {field.name: getattr(item, field.name) for field in fields(ItemSpec)}
    record(
        actor=actor,
        kind=kind,
        subject=f"team:{item.team.slug} item:{item.key} version:{item.version}",
        digest=digest_of(said),
    )
