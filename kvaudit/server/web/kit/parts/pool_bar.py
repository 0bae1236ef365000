"""The pool/context bar: a pool drawn against the context it must hold, with the danger zone.

Widths become SVG attributes, since the content security policy allows no inline style.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from django.utils.safestring import SafeString, mark_safe

from kvaudit.auditor.checks.pool.numbers import required_tokens, times_context, zone_in_words
from kvaudit.auditor.readings import whole_number

WIDTH = 1000.0  # units of the viewBox; the drawing itself stretches with its column


@dataclass(frozen=True, slots=True)
class PoolBar:
    """Lengths in viewBox units (0 to `WIDTH`), counts in tokens. ``pool`` None = unknown."""

    pool: int | None
    context: int | None
    wanted: int | None  # headroom x context
    headroom: float | None
    danger: tuple[int, int] | None  # [low, high)
    pool_width: float
    context_at: float
    wanted_at: float
    danger_at: float
    danger_width: float

    @property
    def ratio(self) -> float | None:
        """Pool / context, rounded down to hundredths as the check rounds it."""
        return times_context(self.pool, self.context) if self.pool and self.context else None

    @property
    def short(self) -> bool:
        """The pool is known to be smaller than what is wanted."""
        return self.pool is not None and self.wanted is not None and self.pool < self.wanted

    @property
    def sentence(self) -> str:
        """What the drawing shows, for those who do not see it."""
        pool = "pool unknown" if self.pool is None else f"pool {self.pool:,} tokens"
        context = "context unknown" if self.context is None else f"context {self.context:,} tokens"
        parts = [pool, context]
        if self.wanted is not None and self.headroom is not None:
            parts.append(f"wanted {self.wanted:,} ({self.headroom:g} x context)")
        if self.danger is not None:
            parts.append(f"danger zone {zone_in_words(self.danger)} tokens")
        return "; ".join(parts)


def pool_bar(
    pool: int | None, context: int | None, headroom: float | None, danger: tuple[int, int] | None
) -> PoolBar:
    """Lay the bar out so that the longest of pool, wanted pool and context just fits."""
    wanted = required_tokens(headroom, context) if context and headroom else None
    ends = [n for n in (pool, context, wanted, danger[1] if danger else None) if n]
    scale = WIDTH / (max(ends) * 1.02) if ends else 0.0
    start, end = danger or (0, 0)
    return PoolBar(
        pool=pool,
        context=context,
        wanted=wanted,
        headroom=headroom,
        danger=danger,
        pool_width=round((pool or 0) * scale, 2),
        context_at=round((context or 0) * scale, 2),
        wanted_at=round((wanted or 0) * scale, 2),
        danger_at=round(start * scale, 2),
        danger_width=round(max((end - start) * scale, 6.0), 2) if danger else 0.0,
    )


def drawn(bar: PoolBar, large: bool = False) -> SafeString:
    """The drawing, and its numbers as text. By hand: it is all numbers, and a page has fifty."""
    pool, danger = "pool unknown", ""
    body = '<rect class="unknown-pool" x="1" y="4" width="998" height="12"/>'
    if bar.pool is not None:
        pool = f"{bar.pool:,}"
        body = f'<rect class="pool" x="0" y="4" width="{bar.pool_width}" height="12"/>'
    if bar.danger:
        place = f'x="{bar.danger_at}" y="2" width="{bar.danger_width}" height="16"'
        body += f'<rect {place} fill="url(#hatch-danger)"/>'
        body += f'<rect class="danger-rule" fill="none" {place} vector-effect="non-scaling-stroke"/>'
        danger = f" · <b>danger zone</b> {zone_in_words(bar.danger)}"
    if bar.context:
        body += f'<rect class="edge" x="{bar.context_at}" y="0" width="4" height="20"/>'
    if bar.wanted:
        body += f'<rect class="wanted" x="{bar.wanted_at}" y="0" width="4" height="20"/>'
    context = "context unknown" if bar.context is None else f"{bar.context:,}"
    shown = " / ".join(
        f'<span class="unknown">{text}</span>' if "unknown" in text else text for text in (pool, context)
    )
    ratio = f" = {bar.ratio:.2f}×" if bar.ratio is not None else ""
    return mark_safe(  # noqa: S308 - constants and numbers
        f'<div class="poolbar{" poolbar-large" if large else ""}">'
        f'<svg viewBox="0 0 1000 20" preserveAspectRatio="none" role="img" aria-label="{bar.sentence}">'
        f'<rect class="track" x="0" y="4" width="1000" height="12"/>{body}</svg>'
        f'<span class="poolbar-text">{shown}{ratio}{danger}</span></div>'
    )


def from_measures(measures: Mapping[str, Any] | None) -> PoolBar | None:
    """The bar of a `pool` result; None when there is no such result at all.

    Measures come out of the database, written by any release: every field may be missing or odd.
    """
    if measures is None:
        return None
    headroom = _bare(measures.get("headroom"))
    return pool_bar(
        _tokens(measures.get("pool_tokens")),
        _tokens(measures.get("context_tokens")),
        float(headroom) if isinstance(headroom, (int, float)) and 1 <= headroom <= 100 else None,
        _zone(measures.get("danger_zone")),
    )


def _bare(value: Any) -> Any:
    """A measure may be a reading: ``{value, source, state}``."""
    return value.get("value") if isinstance(value, Mapping) and "value" in value else value


def _tokens(value: Any) -> int | None:
    count = whole_number(_bare(value))
    return count if count is not None and 0 < count <= 10**12 else None


def _zone(value: Any) -> tuple[int, int] | None:
    value = _bare(value)
    if isinstance(value, Mapping):
        value = [value.get("start", value.get("from")), value.get("end", value.get("to"))]
    if isinstance(value, Sequence) and not isinstance(value, str) and len(value) == 2:
        start, end = _tokens(value[0]), _tokens(value[1])
        if start is not None and end is not None and start < end:
            return start, end
    return None
