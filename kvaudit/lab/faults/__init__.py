"""Faults on demand: every known one by name, and how several combine."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module

from kvaudit.lab.config import LabConfig
from kvaudit.lab.faults.base import Faults

FAMILIES = ("rejection", "transfer", "answers", "caching", "disclosure", "network")

_known: dict[str, type[Faults]] = {}


def known() -> dict[str, type[Faults]]:
    """Name -> class of every fault, `none` first, in the order of the documentation."""
    if not _known:
        _known["none"] = Faults
        for family in FAMILIES:
            module = import_module(f"kvaudit.lab.faults.{family}")
            for each in vars(module).values():
                if isinstance(each, type) and issubclass(each, Faults) and each.__module__ == module.__name__:
                    _known[each.name] = each
    return _known


def combine(names: Sequence[str]) -> type[Faults]:
    """One class with all the named faults; ValueError with a sentence for an unknown name."""
    chosen: list[type[Faults]] = []
    for name in names:
        if name not in known():
            raise ValueError(f"there is no fault called {name!r}; `kvaudit lab faults` lists them")
        if known()[name] not in chosen and name != "none":
            chosen.append(known()[name])
    if not chosen:
        return Faults
    if len(chosen) == 1:
        return chosen[0]

    def configure(cls: type[Faults], config: LabConfig) -> LabConfig:
        for each in chosen:
            config = each.configure(config)
        return config

    flavours = tuple(f for f in Faults.flavours if all(f in each.flavours for each in chosen))
    body = {"name": "+".join(names), "configure": classmethod(configure), "flavours": flavours}
    return type("Combined", tuple(chosen), body)
