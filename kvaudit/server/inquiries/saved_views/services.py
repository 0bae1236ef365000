"""Saves, shares and removes views of the pages that have filters. A view is its owner's; nobody else can change
it."""

from __future__ import annotations

from urllib.parse import parse_qsl, urlencode

from kvaudit.server.accounts.access import can
from kvaudit.server.accounts.models import Team, User
from kvaudit.server.audits.evidence.canonical import clean_text
from kvaudit.server.inquiries.saved_views.models import SavedView

PAGES = ("fleet", "compliance", "history")
"""Names of the addresses of pages that have views."""

MOST = 50
"""Views of one person and page, and views that one team shares of a page."""

LONGEST_QUERY = 2_000
PLACE = ("before", "after")  # where somebody stood in the list is no part of the view


class ViewProblem(ValueError):
    """Why a view cannot be saved; a sentence."""


def normal(query: str) -> str:
    """The query string as a view keeps it: without empty fields and without a place in the list."""
    pairs = parse_qsl(query.lstrip("?"), errors="replace")
    return urlencode([(key, value) for key, value in pairs if key not in PLACE])


def save_view(*, user: User, page: str, name: str, query: str, share: str = "") -> SavedView:
    """Keep ``query`` (a query string) under ``name``, for oneself or for the team with the slug ``share`` too;
    one's own view of that name is replaced. Raises `ViewProblem`."""
    if page not in PAGES:
        raise ViewProblem("There is no such page to keep a view of.")
    named = clean_text(" ".join(name.split()), 80)
    if not named:
        raise ViewProblem("Give the view a name.")
    kept = normal(query)
    if len(kept) > LONGEST_QUERY:
        raise ViewProblem(f"These filters are longer than a view can hold ({LONGEST_QUERY:,} characters).")
    others = SavedView.objects.exclude(user=user, page=page, name=named)
    if others.of(user, page).count() >= MOST:
        raise ViewProblem(f"You have {MOST} saved views of this page already: remove one first.")
    team = Team.objects.visible_to(user).filter(slug=share).first() if share and "\0" not in share else None
    if share and team is None:
        raise ViewProblem("You see no team of that name to share the view with.")
    if team is not None and others.filter(team=team, page=page).count() >= MOST:
        raise ViewProblem(f"{team.slug} shares {MOST} views of this page already: remove one first.")
    view, _ = SavedView.objects.update_or_create(
        user=user, page=page, name=named, defaults={"query": kept, "team": team}
    )
    return view


def may_remove(user: User, view: SavedView) -> bool:
    """Its owner may, and whoever administers the team that it is shared with: its author may have left."""
    return view.user_id == user.pk or (
        view.team_id is not None and can(user, "manage_accounts", view.team_id)
    )


def remove_view(*, user: User, view: SavedView) -> bool:
    """False when the user may not."""
    if not may_remove(user, view):
        return False
    view.delete()
    return True
