"""Faults of the transfer: pages that never come, come too late, or are read too late."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import replace
from typing import ClassVar

from kvaudit.lab.clock import now
from kvaudit.lab.config import LabConfig
from kvaudit.lab.faults.base import Faults, Nature
from kvaudit.lab.pool import Pages
from kvaudit.lab.request import Request


class ShortTransfer(Faults):
    """The done signal comes after the first chunk and nobody counts (what sglang #38704 would check:
    "decode check of transferred length"): 8 pages reserved, 1 arrived, decode attends over 8. Every
    other transfer; the whole ones leave what the short ones then read."""

    name = "short_transfer"
    nature = Nature.LEAKS
    disaggregated = True
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
    nature = Nature.LEAKS
    disaggregated = True
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
    nature = Nature.LEAKS
    disaggregated = True
    reports = ("vllm#21570", "aws-do-eks#84")
    LEASE = 0.02
    DELAY = 0.05

    def lease(self) -> float | None:
        return self.LEASE

    def reader_delay(self, waiting: int) -> float:
        """A reader is slow when others are before it; alone it comes at once."""
        return self.DELAY * waiting


class MiddlePages(Faults):
    """Chunks in the middle of a prompt are lost under way, and the count, which is all that sglang #38704 would
    compare, is right: beginning and end, where the question stands, are its own, and between them lies
    what the pages held before. Every other transfer; the whole ones leave what the others then read."""

    name = "middle_pages"
    nature = Nature.LEAKS
    disaggregated = True
    reports = ("sglang#38704",)
    RATE = 0.5

    def pages_lost(self, request: Request, pages: int, page_size: int) -> Container[int]:
        return self._lost(pages) if self.random.random() < self.RATE else ()

    def _lost(self, pages: int) -> Container[int]:
        return range(pages // 3, 2 * pages // 3)


class AllButLastPage(MiddlePages):
    """All pages but the last are somebody else's: the worst that a question at the very end of a prompt can
    miss, since the last page alone answers it (measured on a vLLM whose pages were replaced: the nonce came
    10 of 10 times, a word of the stranger never). Pages of 64, since a token is a byte here."""

    name = "all_but_last_page"
    nature = Nature.LEAKS
    reports = ("sglang#38704",)

    @classmethod
    def configure(cls, config: LabConfig) -> LabConfig:
        return replace(config, page=config.page or 64)

    def _lost(self, pages: int) -> Container[int]:
        return range(pages - 1)


class Residue(Faults):
    """vllm #50749, tt-metal #54413: whether a prompt is damaged depends on its length modulo the page: 21 of 31
    at residues 0 to 8, none of 17 at 9 to 15. Lengths that are never sent stay open for ever. Pages of 64, since
    a token is a byte here."""

    name = "residue"
    nature = Nature.LEAKS
    disaggregated = True
    reports = ("vllm#50749", "tt-metal#54413")
    LEAST = 1_024  # tokens of a prompt that is damaged

    @classmethod
    def configure(cls, config: LabConfig) -> LabConfig:
        return replace(config, page=config.page or 64)

    def pages_lost(self, request: Request, pages: int, page_size: int) -> Container[int]:
        tokens = len(request.input_ids)
        damaged = tokens > self.LEAST and tokens % page_size <= page_size // 2
        return range(pages - 1) if damaged else ()


class Dwell(Faults):
    """Mooncake #850, vllm #52234: a registration or a lease runs out while nobody asks, and the first transfer
    after the pause moves nothing and reports success. Whoever asks without a pause never sees it."""

    name = "dwell"
    nature = Nature.LEAKS
    disaggregated = True
    reports = ("Mooncake#850", "vllm#52234")
    IDLE = 60.0  # seconds

    def __init__(self, seed: int = 0) -> None:
        super().__init__(seed)
        self._last: float | None = None

    def pages_lost(self, request: Request, pages: int, page_size: int) -> Container[int]:
        before, self._last = self._last, now()
        return range(pages) if before is not None and now() - before > self.IDLE else ()
