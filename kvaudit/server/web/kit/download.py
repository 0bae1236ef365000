"""Files that a page hands out: always as downloads, so that nothing in them acts on the reader's browser."""

from __future__ import annotations

from collections.abc import Iterator

from django.http import HttpResponse, HttpResponseBase, StreamingHttpResponse

BYTES = "application/octet-stream"


def download(
    content: bytes | str | Iterator[bytes] | Iterator[str] | Iterator[bytes | str], name: str, kind: str
) -> HttpResponseBase:
    """The file ``name`` of the MIME type ``kind``; parts are streamed, and memory does not grow with them."""
    whole = isinstance(content, (bytes, str))
    response = (HttpResponse if whole else StreamingHttpResponse)(content, content_type=kind)
    response["Content-Disposition"] = f'attachment; filename="{name}"'
    return response
