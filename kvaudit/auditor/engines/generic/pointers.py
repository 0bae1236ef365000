"""JSON pointers (RFC 6901): where a pool says its numbers."""

from __future__ import annotations

import re
from typing import Any

POINTERS = ("capacity", "max_request", "in_use", "shards", "version", "model")
_INDEX = re.compile(r"(?:0|[1-9][0-9]{0,8})\Z", re.ASCII)
_BAD_ESCAPE = re.compile(r"~(?![01])")


class _Missing:
    """What a pointer finds where there is nothing; null is something."""


MISSING = _Missing()


def follow(document: Any, pointer: str) -> Any:
    """The value that an RFC 6901 pointer names, or `MISSING`. "" names the whole document."""
    place = document
    for token in pointer.split("/")[1:]:
        key = token.replace("~1", "/").replace("~0", "~")
        if isinstance(place, dict) and key in place:
            place = place[key]
        elif isinstance(place, list) and _INDEX.match(key) and int(key) < len(place):
            place = place[int(key)]
        else:
            return MISSING
    return place


def pointer_problem(name: str, pointer: str) -> str:
    """A sentence when this is no JSON pointer that the generic engine knows; "" when it is."""
    if name not in POINTERS:
        return f"there is no generic pointer called {name!r}; there are {', '.join(POINTERS)} and path"
    if pointer and not pointer.startswith("/"):
        return f"the pointer {name} is {pointer!r:.80}: a JSON pointer is empty or begins with /"
    if _BAD_ESCAPE.search(pointer):
        return f"the pointer {name} is {pointer!r:.80}: write ~ as ~0 and / as ~1"
    return ""
