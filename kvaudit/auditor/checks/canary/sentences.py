"""The sentences of a canary's result that say what was found, how it was asked, and what was not seen. Pure."""

from __future__ import annotations

from kvaudit.auditor.checks.canary.design import PHRASE
from kvaudit.auditor.checks.canary.matrix import surfacing_of
from kvaudit.auditor.checks.canary.seen import CanarySeen, Sighting
from kvaudit.auditor.checks.node_coverage import listed
from kvaudit.auditor.stats.bounds import interval

LEAST_SURFACING = 0.5


def left_out(seen: CanarySeen) -> str:
    if not seen.left_out:
        return ""
    return f" Not sent any more, since the server failed instead of refusing: {', '.join(seen.left_out)}."


def blind(seen: CanarySeen) -> str:
    """Ways in which a stranger's phrase would hardly have shown."""
    found = surfacing_of(seen.asked)
    weak = [
        f"{mode} ({one.surfaced} of {one.trials})"
        for (mode, tail), one in found.items()
        if tail == PHRASE and one.share < LEAST_SURFACING
    ]
    return f" Stale text would seldom have surfaced in {' and '.join(weak)}." if weak else ""


def asked_how(seen: CanarySeen) -> str:
    """The ways that were asked, and what the target offers besides."""
    modes = list(dict.fromkeys(one.mode for one in seen.asked if one.drawn))
    streams = {one.stream for one in seen.asked if one.drawn}
    whole = {frozenset((True,)): "streamed", frozenset((False,)): "whole"}.get(
        frozenset(streams), "streamed and whole"
    )
    lengths = [one.trial.tokens for one in seen.asked if one.drawn] or [0]
    told = f"Asked: {listed(modes) or 'nothing'}, {whole}, {min(lengths):,} to {max(lengths):,} tokens."
    return f"{told} Not asked: {', '.join(seen.untested)}." if seen.untested else told


def fail_sentence(seen: CanarySeen, hits: list[Sighting]) -> str:
    first = hits[0]
    whose = (
        f"Text planted by tenant {first.planted_by} appeared in tenant {first.reader}'s answer"
        if first.kind == "cross-tenant"
        else f"Text of an earlier request of tenant {first.reader} appeared in a later answer of the same tenant"
    )
    rate = ""
    if seen.repeats:
        low, high = interval(seen.repeat_hits, seen.repeats)
        rate = (
            f" Repeated {seen.repeats} times, it happened {seen.repeat_hits} times ({low:.0%} to {high:.0%})."
        )
    pages = f", from about page {_listed(first.ordinals)} of it" if first.ordinals else ""
    since = " It was planted in an earlier run." if first.earlier_run else ""
    told = f"{whose} to a prompt of {first.length:,} tokens: {first.run} of 6 marker words in a row{pages}."
    return f"{told}{since}{rate}"


def _listed(ordinals: tuple[int, ...]) -> str:
    return ", ".join(str(ordinal) for ordinal in ordinals[:4]) + (" and more" if len(ordinals) > 4 else "")
