"""Static files: compressed, collected when something changed and only then, whole after a collection cut off."""

from __future__ import annotations

import gzip
import os
from pathlib import Path
from typing import Any

import brotli
import pytest

from kvaudit.server.ops import static_files
from kvaudit.server.ops.static_files import collect_static

COMPRESSED = "kvaudit.server.ops.static_files.CompressedStorage"
PLAIN = "django.contrib.staticfiles.storage.ManifestStaticFilesStorage"
SCRIPT = "let answer = 42;\n" * 500


@pytest.fixture
def source(settings: Any, tmp_path: Path) -> Path:
    """A folder of static files, one of each kind."""
    folder = tmp_path / "source"
    folder.mkdir()
    (folder / "a.css").write_text("a {}")
    (folder / "a.js").write_text(SCRIPT)
    (folder / "a.js.map").write_text(SCRIPT)
    settings.STATICFILES_DIRS = [folder]
    settings.STATICFILES_FINDERS = ["django.contrib.staticfiles.finders.FileSystemFinder"]
    settings.STATIC_ROOT = tmp_path / "collected"
    use(settings, COMPRESSED)
    return folder


def use(settings: Any, backend: str) -> None:
    settings.STORAGES = {**settings.STORAGES, "staticfiles": {"BACKEND": backend}}


def collected(settings: Any, pattern: str) -> list[Path]:
    return sorted(Path(settings.STATIC_ROOT).glob(pattern))


def test_every_file_that_gains_by_it_is_compressed_and_decodes(source: Path, settings: Any) -> None:
    assert collect_static()
    hashed = collected(settings, "a.*.js")
    assert len(hashed) == 1
    assert brotli.decompress(Path(f"{hashed[0]}.br").read_bytes()).decode() == SCRIPT
    assert gzip.decompress(Path(f"{hashed[0]}.gz").read_bytes()).decode() == SCRIPT
    assert collected(settings, "*.css.br") == [], "four bytes do not get shorter"
    assert collected(settings, "*.map.br") == [], "nobody asks for maps"


@pytest.mark.parametrize("change", ["content", "same length and time", "new", "gone", "backend", "quality"])
def test_a_change_of_content_collects_again(
    source: Path, settings: Any, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    assert collect_static()
    assert not collect_static()
    match change:
        case "content":
            (source / "a.css").write_text("a { color: red }")
        case "same length and time":
            before = (source / "a.css").stat()
            (source / "a.css").write_text("b {}")
            os.utime(source / "a.css", ns=(before.st_atime_ns, before.st_mtime_ns))
        case "new":
            (source / "b.css").write_text("b {}")
        case "gone":
            (source / "a.js").unlink()
        case "backend":
            use(settings, PLAIN)
        case "quality":
            monkeypatch.setattr(static_files, "QUALITY", 4)
    assert collect_static()
    assert not collect_static()
    assert bool(collected(settings, "a.*.js.br")) == (change not in ("gone", "backend"))


def test_a_new_time_alone_collects_nothing(source: Path) -> None:
    """As after a checkout that wrote the same files anew."""
    assert collect_static()
    for path in source.iterdir():
        os.utime(path, ns=(1, 1))
    assert not collect_static()


def test_a_collection_cut_off_is_made_again_from_nothing(
    source: Path, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut_off(data: bytes) -> bytes:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(static_files._QuickCompressor, "compress_brotli", staticmethod(cut_off))
        with pytest.raises(OSError, match="No space"):
            collect_static()
    for half in collected(settings, "a*.js*"):
        half.write_bytes(b"half")
    assert collect_static()
    (hashed,) = collected(settings, "a.*.js")
    assert hashed.read_text() == SCRIPT
    assert brotli.decompress(Path(f"{hashed}.br").read_bytes()).decode() == SCRIPT
