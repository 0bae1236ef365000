"""Parts of pages that ask for themselves again while something is under way: an audit, an import, an export.

The part's template fills the blocks of kit/progress.html, or says itself what it is and includes kit/poll.html; its
view answers with the same template.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Live:
    """What kit/progress.html needs besides its blocks."""

    page: str
    """The address of the page around the part, for browsers that run no scripts."""
    poll: str = ""
    """The address of the part, asked while something is under way; "" once it has ended."""
    cancel: str = ""
    """Where the form goes that stops it, "" where the reader cannot."""
    what: str = ""
    """What is cancelled then, in a word."""
    pace: str = "every 1s"
    """When to ask, as htmx writes it."""
