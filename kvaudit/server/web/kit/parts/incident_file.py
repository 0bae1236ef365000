"""An incident's document as a download."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from django.http import Http404, HttpResponseBase

from kvaudit.server.incidents import export
from kvaudit.server.incidents.document import Document
from kvaudit.server.web.kit.download import download

WRITERS: Mapping[str, tuple[Callable[[Document], str], str]] = {
    "md": (export.to_markdown, "text/markdown; charset=utf-8"),
    "json": (export.to_json, "application/json"),
    "yaml": (export.to_yaml, "application/yaml; charset=utf-8"),
}


def as_file(document: Document, kind: str, name: str) -> HttpResponseBase:
    """The document as a download of this kind; 404 for any other."""
    if kind not in WRITERS:
        raise Http404
    writer, content_type = WRITERS[kind]
    return download(writer(document), f"{name}.{kind}", content_type)
