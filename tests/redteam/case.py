"""Defines a case: a gateway, what stands behind it, what it is asked, and what has to come out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, Literal

from starlette.types import ASGIApp

from tests.redteam import cases
from tests.redteam.gateway import Gateway
from tests.redteam.wanted import Happened, Rule

SET = ("pool", "version", "accounting", "rejection", "coherence", "canary")
SHORT = 420_000
"""Prompt tokens of a check: some 17 rounds of the canary."""


@dataclass(frozen=True, slots=True)
class Lab:
    """A deployment behind the gateway. ``known``: its nodes are given to the audit."""

    faults: tuple[str, ...] = ("healthy",)
    options: Mapping[str, Any] = field(default_factory=dict)
    known: bool = False


HEALTHY = Lab(known=True)
UNIFIED = Lab(options={"unified": True}, known=True)


@dataclass(frozen=True, slots=True)
class Case:
    """``gateway`` makes what stands before the entry (``before="nodes"``: before the node of a single one, and then
    no entry is given); ``parameters`` are set on it. ``open`` says why the wanted verdict does not come out yet."""

    name: str
    kind: Literal["leak", "odd", "control"]
    wanted: tuple[Rule, ...]
    gateway: Callable[[Sequence[ASGIApp], int], Gateway] = Gateway
    parameters: Mapping[str, Any] = field(default_factory=dict)
    labs: tuple[Lab, ...] = (HEALTHY,)
    before: Literal["entry", "nodes"] = "entry"
    checks: tuple[str, ...] = SET
    prompt_tokens: int | None = SHORT  # of each check; None = the default
    tenants: int = 2
    one_key: bool = False  # all tenants hold the first one's key
    seed: int = 1
    open: str = ""
    fast: bool = False  # in make test

    @property
    def rules(self) -> tuple[Rule, ...]:
        """A case that never did what it is about is no proof, so that is asked of every one."""
        if self.kind == "control" or any(isinstance(rule, Happened) for rule in self.wanted):
            return self.wanted
        return (Happened(), *self.wanted)

    @property
    def says(self) -> str:
        """What is wanted, in a few words."""
        return ", ".join(rule.says for rule in self.wanted if rule.says)

    @property
    def setting(self) -> tuple[object, ...]:
        """What a control must share to be one of this case."""
        return self.checks, self.prompt_tokens


def known() -> Iterator[Case]:
    """Every case, in the order of the modules' names."""
    for module in iter_modules(cases.__path__):
        yield from import_module(f"{cases.__name__}.{module.name}").CASES
