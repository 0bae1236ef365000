"""Parses request bodies: small and JSON, refused with a sentence otherwise."""

from __future__ import annotations

from typing import Any

import orjson
from django.http import HttpRequest
from ninja.errors import HttpError
from ninja.parser import Parser

LARGEST_BODY = 2 * 2**20
"""Bytes; a report on 1,000 nodes stays below. Not above settings.DATA_UPLOAD_MAX_MEMORY_SIZE."""


class CappedParser(Parser):
    """Reads a body only when its announced length fits."""

    def parse_body(self, request: HttpRequest) -> Any:
        """The JSON object. 413 above `LARGEST_BODY`, 422 for anything else."""
        announced = request.META.get("CONTENT_LENGTH") or "0"
        if not announced.isascii() or not announced.isdigit() or int(announced) > LARGEST_BODY:
            raise HttpError(413, f"The body may have at most {LARGEST_BODY:,} bytes.")
        try:
            value = orjson.loads(request.body)
        except orjson.JSONDecodeError as problem:
            raise HttpError(422, f"The body must be JSON: {problem}.") from None
        if not isinstance(value, dict):
            raise HttpError(422, "The body must be a JSON object.")
        return value
