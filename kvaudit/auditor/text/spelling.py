"""Builds prompts of exactly n tokens with a handful of tokenizer calls.

Texts are turned into token ids piece by piece and the ids are laid back to back, so the length is
exact by construction and a prompt of a million tokens costs a few dozen short tokenizer calls. The
ids are kept as encoded JSON: the request body is joined from bytes and no list of a million numbers
exists (bench/long_prompt.py).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field

from kvaudit.auditor.text.markers import Marker
from kvaudit.auditor.text.prompts import BARE, WINDOW_FRAMES, Contents, Frame, Needle, Tail, frame
from kvaudit.auditor.text.wordings import USUAL, Wording

PADS = (" a", " the", ".", "a", "\n")
"""Pieces that are one token in most vocabularies (" a" in all three that were measured), or one byte."""

HUNDRED = 100

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
    contents: Contents | None = field(default=None, repr=False)
    mode: str = ""  # the way it is to be sent; "" = the prober's usual one


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

    async def _end(self, tail: Tail, most: int) -> tuple[int, ...]:
        """The tail's ids; with words that say nothing before them where the last tokens must be bare, of at most
        ``most`` tokens (a short prompt must keep its phrase)."""
        if not tail.text:
            return ()
        asked = await self.ids(tail.text)
        wanted = min(tail.bare, most) - len(asked)
        if wanted <= 0:
            return asked
        bare = await self.ids(BARE)
        return (bare * (wanted // len(bare) + 1))[-wanted:] + asked

    async def _bare(self, tokens: int) -> bytes:
        """Words that say nothing, encoded."""
        bare = await self.ids(BARE)
        whole, rest = divmod(tokens, len(bare))
        return _joined(*[_encoded(bare)] * whole, _encoded(bare[:rest]))

    async def framed(
        self,
        marker: Marker,
        tokens: int,
        tail: Tail,
        needles: Sequence[Needle] = (),
        lead: str = "",
        wording: Wording = USUAL,
    ) -> Prompt:
        """Numbered frames of ``marker`` up to exactly ``tokens`` tokens, the last of them ``tail``
        (no text: cut anywhere). Needles stand between frames at their depth;
        ``lead`` comes first, so that prompts differ from their first token on. ValueError when it
        cannot fit."""
        start = await self.ids(lead) if lead else ()
        end = await self._end(tail, tokens // 2)
        placed = [(needle.depth, await self.ids(needle.sentence)) for needle in needles]
        room = tokens - len(start) - len(end) - sum(len(said) for _, said in placed)
        if room < 0:
            raise ValueError(f"{tokens} tokens cannot hold the question and {len(placed)} needles")
        shape = frame(marker, wording)
        head, body = await self.ids(shape.head), await self.ids(shape.body)
        digits = [await self.ids(str(digit)) for digit in range(10)]
        filler = _Frames(head, digits, body)
        pieces = [_encoded(start)]
        laid = 0
        if tail.depth is not None:
            window = min(room, WINDOW_FRAMES * filler.usual)
            before = round((room - window) * tail.depth)
            pieces += [
                await self._bare(before),
                *filler.take(window),
                await self._bare(room - window - before),
            ]
            laid = room
        for depth, said in sorted(placed, key=lambda item: item[0]):
            until = round(room * depth)
            pieces += filler.take(until - laid)
            laid = until
            pieces.append(_encoded(said))
        pieces += filler.take(room - laid)
        pieces.append(_encoded(end))
        ids = b",".join(piece for piece in pieces if piece)
        contents = Contents(marker, tail, tuple(needles), lead, wording)
        return Prompt(tokens, ids, frame_tokens=filler.usual, contents=contents)


class _Frames:
    """Frames as encoded ids, cut at any token. A hundred frames whose numbers begin alike are joined at
    once: a million tokens are some thirty thousand frames, and a loop over them costs more than the
    encoding that this saves."""

    def __init__(self, head: Sequence[int], digits: Sequence[Sequence[int]], body: Sequence[int]) -> None:
        self._head, self._digits, self._body = head, digits, body
        self._sizes = [len(digit) for digit in digits]
        self._fixed = len(head) + len(body)
        said = [_encoded(digit) for digit in digits]
        head_json, body_json = _encoded(head), _encoded(body)
        self._starts = [_joined(head_json, said[high], said[low]) for high in range(10) for low in range(10)]
        self._ends = [_joined(said[high], said[low], body_json) for high in range(10) for low in range(10)]
        self._pairs = [high + low for high in self._sizes for low in self._sizes]
        self._ends_size = sum(self._pairs) + HUNDRED * self._fixed
        self._number = 0

    @property
    def usual(self) -> int:
        """Tokens of a frame numbered with ones."""
        return self._fixed + 4 * self._sizes[1]

    def take(self, tokens: int) -> list[bytes]:
        """Whole frames, then a piece of one, together exactly ``tokens`` tokens."""
        pieces: list[bytes] = []
        while tokens > 0:
            first, last = divmod(self._number % 10_000, HUNDRED)
            hundred = HUNDRED * self._pairs[first] + self._ends_size
            if last == 0 and hundred <= tokens:
                start = self._starts[first]
                pieces += (start, (b"," + start + b",").join(self._ends))
                tokens -= hundred
                self._number += HUNDRED
                continue
            size = self._fixed + self._pairs[first] + self._pairs[last]
            if size <= tokens:
                pieces += (self._starts[first], self._ends[last])
            else:
                pieces.append(_encoded(self._tokens(first, last)[:tokens]))
            tokens -= min(size, tokens)
            self._number += 1
        return pieces

    def _tokens(self, first: int, last: int) -> list[int]:
        digits = (first // 10, first % 10, last // 10, last % 10)
        return [*self._head, *(token for digit in digits for token in self._digits[digit]), *self._body]


def _joined(*parts: bytes) -> bytes:
    return b",".join(part for part in parts if part)


def _encoded(ids: Iterable[int]) -> bytes:
    return b",".join(b"%d" % token for token in ids)


async def counted(
    marker: Marker,
    tokens: int,
    tail: Tail,
    needles: Sequence[Needle],
    count: Callable[[str], Awaitable[int]],
    lead: str = "",
    wording: Wording = USUAL,
) -> Prompt:
    """The same prompt as text, for engines that take no ids: grown and padded with single-token pieces
    until ``count`` (tokenizer endpoint, or usage of a calibration) says exactly ``tokens``.

    ValueError when the length cannot be hit.
    """
    shape = frame(marker, wording)
    base = await count(shape.numbered(0))
    pad = await _single(shape.numbered(0), base, count)
    said = await _said(tail, tokens // 2, count)
    end = await count(said) if said else 0
    frame_tokens = max(1, base)
    window = tail.depth is not None and tokens - end > (WINDOW_FRAMES + 1) * frame_tokens
    if window:
        piece = BARE
        free = tokens - end - WINDOW_FRAMES * frame_tokens
    else:
        piece = shape.numbered(9_999)
        free = tokens - end
    each = max(1, await count(piece))
    size = _Size(each, each / len(piece.split()), max(0, free) // each)
    for _ in range(TRIES):
        if window:
            laid = _windowed(shape, size.pieces, tail.depth or 0.0)
        else:
            laid = size.cut(piece) + _laid(shape.numbered, size.pieces, needles)
        text = lead + laid + pad * size.letters + said
        over = await count(text) - tokens
        if over == 0:
            contents = Contents(marker, tail, tuple(needles), lead, wording)
            return Prompt(tokens, text=text, frame_tokens=frame_tokens, contents=contents)
        if not (size.grow(-over) if over < 0 else size.shrink(over)):
            break
    raise ValueError(f"no text of exactly {tokens} tokens was found")


TRIES = 12
"""Counts of a whole text until its length is hit."""


@dataclass(slots=True)
class _Size:
    """What a text consists of: whole pieces, the last words of a cut one before them, single-token letters."""

    piece_tokens: int
    word_tokens: float
    pieces: int
    words: int = 0
    letters: int = 0

    def cut(self, piece: str) -> str:
        said = piece.split()
        return " ".join(said[max(0, len(said) - self.words) :]) + " " if self.words else ""

    def grow(self, missing: int) -> bool:
        """By so many tokens, about: the largest pieces first."""
        if missing >= self.piece_tokens:
            self.pieces += missing // self.piece_tokens
        elif missing >= 3 * self.word_tokens and not self.words:
            self.words = max(1, int(missing / self.word_tokens) - 2)
        else:
            self.letters += missing
        return True

    def shrink(self, over: int) -> bool:
        """By so many tokens at least; False when nothing is left to leave out."""
        if over <= self.letters:
            self.letters -= over
            return True
        over -= self.letters
        self.letters = 0
        if self.words:
            self.words = max(0, self.words - max(1, int(over / self.word_tokens)))
            return True
        self.pieces -= max(1, -(-over // self.piece_tokens))
        return self.pieces >= 0


async def _said(tail: Tail, most: int, count: Callable[[str], Awaitable[int]]) -> str:
    """The tail's text, after words that say nothing until the last ``bare`` tokens hold no phrase."""
    bare = min(tail.bare, most)
    if not tail.text or not bare:
        return tail.text
    each = max(1, await count(BARE))
    missing = max(0, bare - await count(tail.text))
    return BARE * -(-missing // each) + tail.text


async def _single(before: str, base: int, count: Callable[[str], Awaitable[int]]) -> str:
    """A piece that costs exactly one token each time it is repeated."""
    for piece in PADS:
        if await count(before + piece * 8) - base == 8:
            return piece
    return PADS[0]


def _laid(numbered: Callable[[int], str], frames: int, needles: Sequence[Needle]) -> str:
    pieces = [numbered(number) for number in range(frames)]
    for needle in sorted(needles, key=lambda item: item.depth, reverse=True):
        pieces.insert(round(frames * needle.depth), needle.sentence)
    return "".join(pieces)


def _windowed(shape: Frame, bare: int, depth: float) -> str:
    """Frames between so many pieces that say nothing, the window at its depth."""
    before = round(bare * depth)
    return BARE * before + " " + _laid(shape.numbered, WINDOW_FRAMES, ()) + BARE * (bare - before)
