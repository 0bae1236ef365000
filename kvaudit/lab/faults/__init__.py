"""Faults on demand: every known one by name, and how several combine."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module

from kvaudit.lab.config import LabConfig
from kvaudit.lab.faults.base import Faults

FAMILIES = (
    "rejection",
    "transfer",
    "answers",
    "caching",
    "gateway",
    "beside",
    "disclosure",
    "network",
    "oddities",
)

_known: dict[str, type[Faults]] = {}


def known() -> dict[str, type[Faults]]:
    """Name -> class of every fault, `none` first, in the order of the documentation."""
    if not _known:
        _known["none"] = Faults
        for family in FAMILIES:
            module = import_module(f"kvaudit.lab.faults.{family}")
            for member in vars(module).values():
                if (
                    isinstance(member, type)
                    and issubclass(member, Faults)
                    and member.__module__ == module.__name__
                    and "name" in vars(member)
                ):
                    _known[member.name] = member
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
        for fault in chosen:
            config = fault.configure(config)
        return config

    flavours = tuple(f for f in Faults.flavours if all(f in fault.flavours for fault in chosen))
    body = {"name": "+".join(names), "configure": classmethod(configure), "flavours": flavours}
    return type("Combined", tuple(chosen), body)
