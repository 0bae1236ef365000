"""Decoding under a cap: compressed bombs stop at the cap."""

from __future__ import annotations

import gzip
import zlib

import pytest

from kvaudit.auditor.transport import BadEncoding, BodyTooLarge
from kvaudit.auditor.transport.body import PIECE, Decoder


def decoded(encoding: str, *chunks: bytes, limit: int = 10_000) -> bytes:
    decoder = Decoder(encoding, limit, "GET http://n/x")
    body = b"".join(piece for chunk in chunks for piece in decoder.feed(chunk))
    decoder.finish()
    return body


RAW = zlib.compressobj(wbits=-15)
RAW_DEFLATE = RAW.compress(b"hello") + RAW.flush()


@pytest.mark.parametrize(
    ("encoding", "body"),
    [
        ("", b"hello"),
        ("identity", b"hello"),
        ("gzip", gzip.compress(b"hello", mtime=0)),
        ("GZIP", gzip.compress(b"hello", mtime=0)),
        ("x-gzip", gzip.compress(b"hello", mtime=0)),
        ("deflate", zlib.compress(b"hello")),
        ("deflate", RAW_DEFLATE),
    ],
)
def test_encodings(encoding: str, body: bytes) -> None:
    assert decoded(encoding, body) == b"hello"
    if encoding != "deflate":
        assert decoded(encoding, *(body[at : at + 1] for at in range(len(body)))) == b"hello"


def test_bomb_holds_no_more_than_cap_and_one_piece() -> None:
    packed = gzip.compress(b" " * 50_000_000, mtime=0)
    decoder = Decoder("gzip", 1_000_000, "GET http://n/x")
    held = 0
    with pytest.raises(BodyTooLarge, match="unpacks to more than"):  # noqa: PT012
        for piece in decoder.feed(packed):
            held += len(piece)
    assert held <= 1_000_000 + PIECE


def test_plain_body_over_the_cap() -> None:
    with pytest.raises(BodyTooLarge):
        decoded("", b"x" * 6000, b"x" * 6000)


def test_body_exactly_at_the_cap() -> None:
    assert len(decoded("", b"x" * 10_000)) == 10_000


def test_compressed_input_that_decodes_to_nothing_counts() -> None:
    """Empty stored blocks decode to nothing for ever."""
    packer = zlib.compressobj(wbits=31)
    empty = packer.compress(b"") + packer.flush(zlib.Z_FULL_FLUSH)
    with pytest.raises(BodyTooLarge):
        decoded("gzip", empty, *[b"\x00\x00\x00\xff\xff" * 500] * 10)


@pytest.mark.parametrize(
    ("encoding", "body", "says"),
    [
        ("br", b"x", "not offered"),
        ("gzip, gzip", b"x", "not offered"),
        ("gzip", b"not gzip", "broken gzip"),
        ("gzip", gzip.compress(b"hello" * 100, mtime=0)[:-9], "ends in the middle"),
        ("deflate", b"\xff\xff\xff", "broken"),
    ],
)
def test_broken_encodings(encoding: str, body: bytes, says: str) -> None:
    with pytest.raises(BadEncoding, match=says):
        decoded(encoding, body)


def test_announced_length_over_the_cap_is_refused_before_reading() -> None:
    decoder = Decoder("", 10, "GET http://n/x")
    decoder.check_announced("10")
    decoder.check_announced("nonsense")
    with pytest.raises(BodyTooLarge):
        decoder.check_announced("11")
    with pytest.raises(BodyTooLarge):
        decoder.check_announced("9" * 5000)


def test_trailing_bytes_after_the_compressed_body_are_ignored() -> None:
    assert decoded("gzip", gzip.compress(b"hello", mtime=0) + b"trailing") == b"hello"
