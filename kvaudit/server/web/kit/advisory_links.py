"""Links the advisories that a sentence names to the library."""

from __future__ import annotations

import re

from django.urls import reverse
from django.utils.html import conditional_escape
from django.utils.safestring import SafeString, mark_safe

# A summary of folded text is a button already, and a button holds no link.
_NAMED = re.compile(r"<summary>.*?</summary>|\b(KVA-\d{3})\b", re.DOTALL)


def linked(value: str) -> SafeString:
    """Escaped, unless it is HTML that was made for the page; then every ``KVA-nnn`` leads to its line."""
    shown = conditional_escape(value)
    if "KVA-" not in shown:
        return mark_safe(shown)  # noqa: S308 - escaped
    library = reverse("library")
    return mark_safe(  # noqa: S308 - escaped, and what is put in holds letters and digits alone
        _NAMED.sub(lambda m: f'<a href="{library}#{m[1]}">{m[1]}</a>' if m[1] else m[0], shown)
    )
