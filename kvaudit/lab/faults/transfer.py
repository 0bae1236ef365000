"""Faults of the transfer: pages that never come, come too late, or are read too late."""

from __future__ import annotations

from typing import ClassVar

from kvaudit.lab.faults.base import Faults
from kvaudit.lab.pool import Pages


class ShortTransfer(Faults):
    """The done signal comes after the first chunk and nobody counts (what sglang #38704 would check:
    "decode check of transferred length"): 8 pages reserved, 1 arrived, decode attends over 8. Every
    other transfer; the whole ones leave what the short ones then read."""

    name = "short_transfer"
    reports: ClassVar[tuple[str, ...]] = ("sglang#38704", "sglang#34208")
    RATE = 0.5

    def pages_to_send(self, pages: Pages, chunk: int) -> Pages:
        return pages[:chunk] if self.random.random() < self.RATE else pages

    def count_is_right(self, arrived: int, reserved: int) -> bool:
        return True


class LateWriter(Faults):
    """sglang #24527, vllm #32255 (KVA-004, KVA-022): a client goes away while its pages are being
    written; decode frees them at once, the next request gets them, and the writer, which nobody can
    stop, writes the old words over the new."""

    name = "late_writer"
    reports = ("sglang#24527", "vllm#32255", "KVA-004", "KVA-022")

    def waits_for_writer(self) -> bool:
        return False

    def link_slowness(self) -> float:
        return 10.0

    def writer_stall(self) -> float:
        return 0.02


class LeaseExpiry(Faults):
    """vllm #21570 (AWS measured 8 of 42 requests): the producer frees a finished prompt's pages after a
    lease; a reader that comes later reads whatever the next request has written into them. HTTP 200,
    no failure on the decode node, only the producer's counters move."""

    name = "lease_expiry"
    reports = ("vllm#21570", "aws-do-eks#84")
    LEASE = 0.02
    DELAY = 0.05

    def lease(self) -> float | None:
        return self.LEASE

    def reader_delay(self, waiting: int) -> float:
        """A reader is slow when others are before it; alone it comes at once."""
        return self.DELAY * waiting
