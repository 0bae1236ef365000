"""Collects and compresses static files, once, when one of them changed."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import brotli
from django.conf import settings
from django.contrib.staticfiles.finders import get_finders
from django.core.management import call_command
from whitenoise.compress import Compressor
from whitenoise.storage import CompressedManifestStaticFilesStorage

QUALITY = 7
"""Of brotli. The best (11) makes the script of the figures 9 % smaller and takes thirty times as long, which somebody
would wait for at the first start (measured: docs/decisions/0016)."""


class _QuickCompressor(Compressor):  # type: ignore[misc]
    # Source maps of other projects are half of all bytes, and no page asks for them.
    SKIP_COMPRESS_EXTENSIONS = (*Compressor.SKIP_COMPRESS_EXTENSIONS, "map")

    @staticmethod
    def compress_brotli(data: bytes) -> bytes:
        compressed: bytes = brotli.compress(data, quality=QUALITY)
        return compressed


class CompressedStorage(CompressedManifestStaticFilesStorage):  # type: ignore[misc]
    """Hashed names, each file beside its gzip and brotli forms."""

    def create_compressor(self, **options: Any) -> Compressor:
        return _QuickCompressor(**options)


def collect_static() -> bool:
    """Collect the static files when the content of one, or the way they are kept, changed; whether that was needed.

    The stamp is written last, so that a collection which was cut off is made again from nothing.
    """
    root = Path(settings.STATIC_ROOT)
    stamp = root / ".collected"
    digest = hashlib.sha256(f"{settings.STORAGES['staticfiles']['BACKEND']} {QUALITY}\n".encode())
    for finder in get_finders():
        for path, storage in finder.list([]):
            content = hashlib.sha256(Path(storage.path(path)).read_bytes()).hexdigest()
            digest.update(f"{path}\0{content}\n".encode())
    if stamp.exists() and stamp.read_text(encoding="ascii") == digest.hexdigest():
        return False
    call_command("collectstatic", interactive=False, clear=True, verbosity=0)
    stamp.write_text(digest.hexdigest(), encoding="ascii")
    return True
