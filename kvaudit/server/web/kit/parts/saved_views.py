"""The saved views beside a page's filters: one's own and those of one's teams."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kvaudit.server.accounts.models import Team
from kvaudit.server.inquiries.models import SavedView
from kvaudit.server.inquiries.saved_views.services import may_remove, normal
from kvaudit.server.web.kit.page import SignedIn

MOST_LISTED = 200
MOST_TEAMS = 200


@dataclass(frozen=True, slots=True)
class SavedViewLine:
    view: SavedView
    mine: bool
    removable: bool
    shown: bool  # the page shows exactly these filters


@dataclass(frozen=True, slots=True)
class SavedViews:
    """``page`` is the name of its address, ``query`` what would be saved, ``teams`` slugs to share with."""

    page: str
    query: str
    lines: Sequence[SavedViewLine]
    more: bool
    teams: Sequence[str]

    @property
    def removable(self) -> list[SavedViewLine]:
        return [line for line in self.lines if line.removable]


def saved_views_of(request: SignedIn, page: str) -> SavedViews:
    """Two queries (access to teams apart), however many views there are."""
    user = request.user
    query = normal(request.GET.urlencode())
    views = list(SavedView.objects.listed_for(user, page)[: MOST_LISTED + 1])
    return SavedViews(
        page=page,
        query=query,
        lines=[
            SavedViewLine(view, view.user_id == user.pk, may_remove(user, view), view.query == query)
            for view in views[:MOST_LISTED]
        ],
        more=len(views) > MOST_LISTED,
        teams=list(Team.objects.visible_to(user).values_list("slug", flat=True)[:MOST_TEAMS]),
    )
