"""Renders Markdown that people wrote as HTML that cannot act: no raw HTML, no pictures, no scripts, links out
only."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import nh3
from django.utils.safestring import SafeString, mark_safe

from kvaudit.server.web.kit import untrusted

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

LONGEST = 200_000

_TAGS = {
    "a", "blockquote", "br", "code", "del", "em", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "li", "ol", "p", "pre",
    "strong", "table", "tbody", "td", "th", "thead", "tr", "ul",
}  # fmt: skip


def render(text: object, *, headings_from: int = 1) -> SafeString:
    """Sanitised HTML. ``headings_from`` n makes a ``#`` an h(n+1), so that a text keeps below its place."""
    shown = "".join(f"[U+{ord(each):04X}]" if untrusted.acts(each) else each for each in str(text)[:LONGEST])
    parser = _parser()
    tokens = parser.parse(shown)
    for token in tokens:
        if token.type in ("heading_open", "heading_close"):
            token.tag = f"h{min(6, int(token.tag[1]) + headings_from)}"
    html = parser.renderer.render(tokens, parser.options, {})
    clean = nh3.clean(
        html,
        tags=_TAGS,
        attributes={"a": {"href"}, "ol": {"start"}},
        url_schemes={"http", "https", "mailto"},
        link_rel="noopener noreferrer nofollow",
    )
    # A wide table scrolls by itself, and from the keyboard. What people wrote holds no tag that is not ours now.
    clean = clean.replace(
        "<table>", '<div class="scroll" role="group" aria-label="Table" tabindex="0"><table>'
    )
    return mark_safe(clean.replace("</table>", "</table></div>"))  # noqa: S308 - nh3 has just cleaned it


@lru_cache(maxsize=1)
def _parser() -> MarkdownIt:
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark", {"html": False, "linkify": False}).enable(["table", "strikethrough"])
    return parser.disable(["image"])
