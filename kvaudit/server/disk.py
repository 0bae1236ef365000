"""Tells how much room a folder's disk has left, and words it when it runs out."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from pathlib import Path

LEAST_TO_START = 64 * 2**20
"""Bytes without which nothing is started: an empty database alone takes this much."""

LOW = 512 * 2**20
"""Below this it is said: PostgreSQL keeps up to 1 GB of its log while it is busy."""

FULL = 20 * 2**20
"""Below this nothing can be counted on: one segment of that log takes 16 MB."""

NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})
"""How the system says that a disk, or somebody's share of it, is full."""


@dataclass(frozen=True, slots=True)
class Room:
    """Bytes that an ordinary user may still write to the disk of ``folder``, and its size."""

    folder: Path
    free: int
    size: int

    @property
    def low(self) -> bool:
        return self.free < min(LOW, self.size // 5)

    @property
    def full(self) -> bool:
        return self.free < FULL

    def in_words(self) -> str:
        """'12 MB of 20.0 GB'."""
        return f"{_size(self.free)} of {_size(self.size)}"


def room(folder: Path) -> Room | None:
    """The room of the folder's disk; None where that cannot be known."""
    try:
        found = os.statvfs(folder)
    except OSError:
        return None
    # A disk that has no room for one more file is as full as one without a byte.
    blocks = 0 if found.f_files and not found.f_favail else found.f_bavail
    return Room(folder, blocks * found.f_frsize, found.f_blocks * found.f_frsize)


def sentence(room: Room) -> str:
    """What is wrong with this disk; "" where nothing is."""
    if room.full:
        return (
            f"The disk of {room.folder} is full ({room.in_words()} free): nothing can be recorded. Make room on it; "
            "kvaudit goes on by itself."
        )
    if room.low:
        return f"The disk of {room.folder} is almost full ({room.in_words()} free): make room on it."
    return ""


def _size(count: int) -> str:
    return f"{count / 2**30:,.1f} GB" if count >= 2**30 else f"{count // 2**20} MB"
