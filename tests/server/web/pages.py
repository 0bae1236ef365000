"""What a page says, as a browser reads its white space: where the lines of a template break is nobody's business."""

from __future__ import annotations

import re
from typing import Any


def page_text(answer: Any) -> str:
    """The markup of an answer, each run of white space one space; other characters stay, harmless or not."""
    return re.sub(r"[ \t\r\n]+", " ", answer.content.decode())
