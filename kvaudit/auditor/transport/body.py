"""Decodes bodies piece by piece under a cap, so that a compressed bomb stops at the cap and not at 10 GB."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

from kvaudit.auditor.transport.errors import BadEncoding, BodyTooLarge, TooManyFrames

PIECE = 65536
"""Bytes decompressed at a time; the most that a bomb can make us hold beyond the cap."""


CHUNKS = 20_000
BYTES_PER_CHUNK = 50
"""A body may come in this many chunks, and one more for every 50 bytes: of a body sent byte by byte, each
chunk costs as much as a thousand bytes."""


class Decoder:
    """Decodes one body (identity, gzip or deflate) and counts both sides against ``limit`` bytes."""

    def __init__(self, encoding: str, limit: int, where: str) -> None:
        self._where = where
        self._limit = limit
        self._received = 0
        self._decoded = 0
        self._chunks = 0
        self._encoding = encoding.strip().lower()
        self._stream: zlib._Decompress | None = None
        if self._encoding in ("gzip", "x-gzip"):
            self._stream = zlib.decompressobj(zlib.MAX_WBITS | 16)
        elif self._encoding == "deflate":
            self._stream = zlib.decompressobj()
        elif self._encoding not in ("", "identity"):
            raise BadEncoding(
                f"{where} answered compressed with {self._encoding[:40]!r}, which was not offered; "
                "a proxy in front of the engine is misconfigured."
            )

    @property
    def plain(self) -> bool:
        """Whether bodies come as they are: every chunk is a piece."""
        return self._stream is None

    def count(self, chunk: bytes) -> None:
        """Count a chunk that needs no decoding; `BodyTooLarge` as soon as the cap is passed,
        `TooManyFrames` for a body that is cut into crumbs."""
        self._received += len(chunk)
        if self._received > self._limit:
            raise self._too_large()
        self._chunks += 1
        if self._chunks > CHUNKS and self._chunks > CHUNKS + self._received // BYTES_PER_CHUNK:
            raise TooManyFrames(
                "The body is cut into more chunks than its length allows for; reading it was stopped."
            )

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """Decoded pieces of ``chunk``; raises as `count`."""
        self.count(chunk)
        if self._stream is None:
            if chunk:
                yield chunk
            return
        pending = chunk
        while pending:
            try:
                piece = self._stream.decompress(pending, PIECE)
            except zlib.error as error:
                if self._encoding == "deflate" and self._decoded == 0 and self._received == len(chunk):
                    self._stream = zlib.decompressobj(-zlib.MAX_WBITS)  # some servers send it without header
                    self._encoding = "raw deflate"
                    continue
                raise BadEncoding(f"{self._where} sent a broken {self._encoding} body ({error}).") from None
            self._decoded += len(piece)
            if self._decoded > self._limit:
                raise self._too_large()
            if piece:
                yield piece
            pending = self._stream.unconsumed_tail
            if self._stream.eof:
                return  # what follows the end of the compressed body is not part of it

    def finish(self) -> None:
        """`BadEncoding` when a compressed body ended in the middle."""
        if self._stream is not None and self._received and not self._stream.eof:
            raise BadEncoding(f"{self._where} sent a {self._encoding} body that ends in the middle.")

    def check_announced(self, length: str) -> None:
        """Refuse a body whose announced length is already above the cap."""
        if length.isdigit() and int(length[:20]) > self._limit:
            raise self._too_large()

    def _too_large(self) -> BodyTooLarge:
        cap = f"{self._limit / 2**20:g} MiB"
        if self._stream is not None:
            return BodyTooLarge(
                f"{self._where} sent a compressed body that unpacks to more than {cap}; reading was stopped, and this "
                "answer does not count."
            )
        return BodyTooLarge(
            f"{self._where} sent more than {cap}; reading was stopped, and this answer does not count."
        )
