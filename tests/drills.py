"""What drills need of the machine, and what they do without it."""

from __future__ import annotations

import glob
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


def cannot(reason: str) -> None:
    """Skip with the reason; under CI, where every drill must be done, fail with it."""
    if os.environ.get("CI"):
        pytest.fail(f"a drill cannot be done here: {reason}")
    pytest.skip(reason)


@contextmanager
def small_disk(megabytes: int, *, files: int = 0) -> Iterator[Path]:
    """A disk of its own, so small; ``files`` bounds how many it holds."""
    if not sys.platform.startswith("linux") or os.geteuid() != 0:
        cannot("only root on Linux can mount a small disk (tmpfs)")
    folder = Path(tempfile.mkdtemp(prefix="kvaudit-disk-"))
    options = f"size={megabytes}m,mode=0755" + (f",nr_inodes={files}" if files else "")
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)], capture_output=True, text=True
    )
    if done.returncode:
        folder.rmdir()
        cannot(f"a small disk cannot be mounted here: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
        folder.rmdir()


def fill(folder: Path) -> Path:
    """Take every byte of the folder's disk; removing the file gives them back."""
    filler = folder / "filler"
    size = 1 << 20
    with filler.open("ab", buffering=0) as file:
        while size:
            try:
                if file.write(b"x" * size) < size:
                    raise OSError
            except OSError:
                size //= 4
    return filler


def shifted(offset: str) -> dict[str, str]:
    """Environment of a process whose clock is ``offset`` off (libfaketime's words: "+2h", "-30s")."""
    found = glob.glob("/usr/lib/*/faketime/libfaketime.so.1") + glob.glob(
        "/usr/lib/faketime/libfaketime.so.1"
    )
    if not found:
        cannot("libfaketime is not installed: apt-get install faketime")
    own = Path(__file__).parent / "shifted"  # its sitecustomize
    return {
        "LD_PRELOAD": found[0],
        "FAKETIME": offset,
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "PYTHONPATH": f"{own}{os.pathsep}{own.parent.parent}",
    }
