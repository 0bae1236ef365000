"""How a request is asked: by which route, in which form, streamed or whole.

A leak may strike one route alone (a chat template's path, a response cache in front of chat, answers that are not
streamed), so every check takes the ways that its target offers in turn: as many requests as in one way, none of them
always the same. What a model gives in one way says nothing of another, so controls and misses are kept apart
(`kvaudit.auditor.checks.misses_by_way`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from kvaudit.auditor.checks.node_coverage import listed
from kvaudit.auditor.checks.prober_protocol import Prober
from kvaudit.auditor.checks.trials import Trial
from kvaudit.auditor.engines.completion import Mode

LONGEST_TEXT = 65_536
"""Tokens of a prompt that is sent as text: the tokenizer must count all of it, several times for an exact length.
Longer ones go as token ids, where the target takes such."""

EITHER = (True, False)
FORMS = ((True, "streamed"), (False, "whole"))


def delivery(stream: bool) -> str:
    """The form in words."""
    return dict(FORMS)[stream]


@dataclass(frozen=True, slots=True)
class Way:
    """A route, streamed or not."""

    mode: Mode
    stream: bool

    @property
    def delivery(self) -> str:
        return delivery(self.stream)

    def __str__(self) -> str:
        return f"{self.mode}, {self.delivery}"


def every_way(modes: Sequence[Mode], streams: Sequence[bool] = EITHER) -> tuple[Way, ...]:
    """All of them, the most exact route first, so that routes and forms both change from one to the next."""
    turns = len(modes) * len(streams)
    forms = [turn + turn // len(modes) * (len(modes) % 2 == 0) for turn in range(turns)]
    return tuple(
        Way(modes[turn % len(modes)], streams[form % len(streams)]) for turn, form in enumerate(forms)
    )


@dataclass(slots=True)
class Ways:
    """The ways of one check, in turn for each kind of request; ``first`` is the turn that a kind begins with."""

    prober: Prober
    streams: Sequence[bool] = EITHER
    given_up: set[Mode] = field(default_factory=set)  # routes where short prompts are not read
    _turns: Counter[str] = field(default_factory=Counter, repr=False)

    @property
    def modes(self) -> tuple[Mode, ...]:
        """Every route that is asked; all of them where none is left."""
        return tuple(mode for mode in self.prober.modes if mode not in self.given_up) or self.prober.modes

    def next(self, kind: str, tokens: int, first: int = 0) -> Way:
        """The way of the next request of this kind and length."""
        ways = every_way(self.modes, self.streams)
        turn = first + self._turns[kind]
        self._turns[kind] += 1
        return self.fitting(ways[turn % len(ways)], tokens)

    def fitting(self, way: Way, tokens: int) -> Way:
        """The way itself, or one by token ids where a text would be too long to be counted."""
        if way.mode.takes_ids or tokens <= LONGEST_TEXT:
            return way
        return self.exact(way)

    def exact(self, way: Way) -> Way:
        """The same with token ids, where the target takes such."""
        return Way(next((mode for mode in self.modes if mode.takes_ids), way.mode), way.stream)


def ways_asked(trials: Iterable[Trial]) -> dict[str, int]:
    """Way -> valid answers asked in it, as measures hold them."""
    return dict(Counter(one.way for one in trials if one.outcome.valid and one.way))


def asked_as(trials: Iterable[Trial]) -> str:
    """ " Asked as completions with token ids and chat with text, streamed and whole.", "" where no trial says."""
    known = [one for one in trials if one.outcome.valid and one.mode]
    if not known:
        return ""
    modes = list(dict.fromkeys(one.mode for one in known))
    forms = [name for stream, name in FORMS if any(one.stream is stream for one in known)]
    return f" Asked as {listed(modes)}, {listed(forms)}."
