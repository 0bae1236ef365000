"""Saving and removing views. A view is its owner's; nobody else can change it."""

from __future__ import annotations

from urllib.parse import parse_qsl, urlencode

from kvaudit.accounts.models import User
from kvaudit.audits.canonical import clean_text
from kvaudit.inquiries.models import SavedView

MOST = 50
"""Views of one person and page."""

LONGEST_QUERY = 2_000
PLACE = ("before", "after")  # where somebody stood in the list is no part of the view


class ViewProblem(ValueError):
    """Why a view cannot be saved; a sentence."""


def save_view(*, user: User, page: str, name: str, query: str) -> SavedView:
    """Keep ``query`` (a query string) under ``name``; a view of that name is replaced."""
    named = clean_text(" ".join(name.split()), 80)
    if not named:
        raise ViewProblem("Give the view a name.")
    kept = urlencode(
        [(key, value) for key, value in parse_qsl(query.lstrip("?"), errors="replace") if key not in PLACE]
    )
    if len(kept) > LONGEST_QUERY:
        raise ViewProblem(f"These filters are longer than a view can hold ({LONGEST_QUERY:,} characters).")
    mine = SavedView.objects.of(user, page)
    if not mine.filter(name=named).exists() and mine.count() >= MOST:
        raise ViewProblem(f"You have {MOST} saved views of this page already: remove one first.")
    view, _ = SavedView.objects.update_or_create(user=user, page=page, name=named, defaults={"query": kept})
    return view


def remove_view(*, user: User, view: SavedView) -> bool:
    """False when it is not the user's."""
    if view.user_id != user.pk:
        return False
    view.delete()
    return True
