"""Prompts of exactly n tokens, built from a handful of tokenizer calls.

Texts are turned into token ids piece by piece and the ids are laid back to back, so the length is
exact by construction and a prompt of a million tokens costs a few dozen short tokenizer calls. The
ids are kept as encoded JSON: the request body is joined from bytes and no list of a million numbers
exists (bench/long_prompt.py).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from kvaudit.text.markers import Marker
from kvaudit.text.prompts import Needle, frame

PADS = (" a", " the", ".", "a", "\n")
"""Pieces that are one token in most vocabularies (" a" in all three that were measured), or one byte."""

Encode = Callable[[str], Awaitable[Sequence[int]]]
"""Text -> token ids of the audited tokenizer, without special tokens."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt of exactly ``tokens`` tokens. ``ids`` is the JSON of its token ids without the
    brackets (``12,7,3``), or None where only ``text`` can be sent."""

    tokens: int
    ids: bytes | None = None
    text: str | None = None
    frame_tokens: int | None = None  # of one numbered frame, about: digits may differ by a token


class Spelling:
    """The audited tokenizer, asked once per distinct piece of text."""

    def __init__(self, encode: Encode) -> None:
        self._encode = encode
        self._known: dict[str, tuple[int, ...]] = {}

    async def ids(self, text: str) -> tuple[int, ...]:
        """Token ids of a short text; ValueError when the tokenizer gives none."""
        if text not in self._known:
            found = tuple(await self._encode(text))
            if not found:
                raise ValueError(f"the tokenizer gave no token for {text[:40]!r}")
            self._known[text] = found
        return self._known[text]

    async def framed(
        self, marker: Marker, tokens: int, tail: str, needles: Sequence[Needle] = (), lead: str = ""
    ) -> Prompt:
        """Numbered frames of ``marker`` up to exactly ``tokens`` tokens, the last of them ``tail``
        (the question; "" for a text cut anywhere). Needles stand between frames at their depth;
        ``lead`` comes first, so that prompts differ from their first token on. ValueError when it
        cannot fit."""
        start = await self.ids(lead) if lead else ()
        end = await self.ids(tail) if tail else ()
        placed = [(needle.depth, await self.ids(needle.said)) for needle in needles]
        room = tokens - len(start) - len(end) - sum(len(said) for _, said in placed)
        if room < 0:
            raise ValueError(f"{tokens} tokens cannot hold the question and {len(placed)} needles")
        shape = frame(marker)
        head, body = await self.ids(shape.head), await self.ids(shape.body)
        digits = [await self.ids(str(digit)) for digit in range(10)]
        filler = _Frames(head, digits, body)
        pieces = [_encoded(start)]
        laid = 0
        for depth, said in sorted(placed, key=lambda item: item[0]):
            until = round(room * depth)
            pieces += filler.take(until - laid)
            laid = until
            pieces.append(_encoded(said))
        pieces += filler.take(room - laid)
        pieces.append(_encoded(end))
        return Prompt(tokens, b",".join(piece for piece in pieces if piece), frame_tokens=filler.usual)


class _Frames:
    """Frames as encoded ids, cut at any token."""

    def __init__(self, head: Sequence[int], digits: Sequence[Sequence[int]], body: Sequence[int]) -> None:
        self._head, self._digits, self._body = head, digits, body
        self._head_json, self._body_json = _encoded(head), _encoded(body)
        self._digit_json = [_encoded(digit) for digit in digits]
        self._numbers = self._count()

    @property
    def usual(self) -> int:
        """Tokens of a frame numbered with ones."""
        return len(self._head) + 4 * len(self._digits[1]) + len(self._body)

    def _count(self) -> Iterator[tuple[int, int, int, int]]:
        number = 0
        while True:
            yield number // 1000 % 10, number // 100 % 10, number // 10 % 10, number % 10
            number += 1

    def take(self, tokens: int) -> list[bytes]:
        """Whole frames, then a piece of one, together exactly ``tokens`` tokens."""
        pieces: list[bytes] = []
        sizes = [len(digit) for digit in self._digits]
        fixed = len(self._head) + len(self._body)
        while tokens > 0:
            number = next(self._numbers)
            size = fixed + sum(sizes[digit] for digit in number)
            if size <= tokens:
                pieces += [self._head_json, *(self._digit_json[digit] for digit in number), self._body_json]
                tokens -= size
            else:
                whole = [
                    *self._head,
                    *(token for digit in number for token in self._digits[digit]),
                    *self._body,
                ]
                pieces.append(_encoded(whole[:tokens]))
                tokens = 0
        return pieces


def _encoded(ids: Iterable[int]) -> bytes:
    return b",".join(b"%d" % token for token in ids)


async def counted(
    marker: Marker,
    tokens: int,
    tail: str,
    needles: Sequence[Needle],
    count: Callable[[str], Awaitable[int]],
    lead: str = "",
) -> Prompt:
    """The same prompt as text, for engines that take no ids: grown and padded with single-token pieces
    until ``count`` (tokenizer endpoint, or usage of a calibration) says exactly ``tokens``.

    ValueError when the length cannot be hit within 12 counts.
    """
    shape = frame(marker)
    base = await count(shape.numbered(0))
    frame_tokens = max(1, base)
    pad = await _single(shape.numbered(0), base, count)
    end = await count(tail) if tail else 0
    frames, letters = max(0, (tokens - end) // frame_tokens - 1), 0
    for _ in range(12):
        text = lead + _laid(shape.numbered, frames, needles) + pad * letters + tail
        over = await count(text) - tokens
        if over == 0:
            return Prompt(tokens, text=text, frame_tokens=frame_tokens)
        if over > letters:
            frames -= max(1, -(-(over - letters) // frame_tokens))
            letters = 0
            if frames < 0:
                break
        else:
            letters -= over
    raise ValueError(f"no text of exactly {tokens} tokens was found")


async def _single(before: str, base: int, count: Callable[[str], Awaitable[int]]) -> str:
    """A piece that costs exactly one token each time it is repeated."""
    for piece in PADS:
        if await count(before + piece * 8) - base == 8:
            return piece
    return PADS[0]


def _laid(numbered: Callable[[int], str], frames: int, needles: Sequence[Needle]) -> str:
    pieces = [numbered(number) for number in range(frames)]
    for needle in sorted(needles, key=lambda item: item.depth, reverse=True):
        pieces.insert(round(frames * needle.depth), needle.said)
    return "".join(pieces)
