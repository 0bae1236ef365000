"""Two runs side by side."""

from __future__ import annotations

from django.http import HttpResponse
from django.shortcuts import render

from kvaudit.server import clock
from kvaudit.server.accounts.models import User
from kvaudit.server.audits.models import Run
from kvaudit.server.web.history.compare.page import compare as compared
from kvaudit.server.web.kit import untrusted
from kvaudit.server.web.kit.page import SignedIn, page


@page()
def compare(request: SignedIn) -> HttpResponse:
    texts = {side: untrusted.query_text(request.GET.get(side), 20) for side in ("a", "b")}
    runs = {side: _run(request.user, text) for side, text in texts.items()}
    problems = [
        f"There is no run {untrusted.plain(texts[side], 20)} that you may see: write the number of a run."
        for side in ("a", "b")
        if texts[side] and runs[side] is None
    ]
    before, after = runs["a"], runs["b"]
    comparison = None
    if before is not None and after is not None:
        if before.pk == after.pk:
            problems.append("Both are the same run: name another one.")
        else:
            comparison = compared(before, after)
    context = {
        "section": "history",
        "now": clock.now(),
        "texts": texts,
        "problems": problems,
        "comparison": comparison,
    }
    status = 404 if any(texts[side] and runs[side] is None for side in ("a", "b")) else 200
    return render(request, "history/compare.html", context, status=status)


def _run(user: User, text: str) -> Run | None:
    if not (text.isascii() and text.isdigit() and int(text) < 2**63):
        return None
    return Run.objects.visible_to(user).with_results().filter(pk=int(text)).first()
