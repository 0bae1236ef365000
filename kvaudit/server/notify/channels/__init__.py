"""The kinds of channels, a module each (``KIND``): how its addresses look, how its messages are signed, how they are
sent. They are found by looking into this folder, so there is no list to keep."""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator, Mapping
from importlib import import_module

from kvaudit.server.notify.channels._kind import BadChannel, Kind, Letter


def _found() -> Iterator[Kind]:
    for module in pkgutil.iter_modules(__path__):
        if not module.name.startswith("_"):
            kind: Kind = import_module(f"{__name__}.{module.name}").KIND
            if kind.id != module.name:
                raise ValueError(f"the module {module.name} describes {kind.id!r}: give both one name")
            yield kind


KINDS: Mapping[str, Kind] = {kind.id: kind for kind in sorted(_found(), key=lambda kind: kind.order)}
"""Id (what a channel's row holds) -> kind, in the order of the form."""


def choices() -> list[tuple[str, str]]:
    """For forms and the column: asked when it is needed, so that a new kind needs no migration."""
    return [(kind.id, kind.label) for kind in KINDS.values()]


def kind_of(kind_id: str) -> Kind:
    """Raises `BadChannel` for a kind that this release does not know."""
    if kind_id not in KINDS:
        raise BadChannel(f"A channel is of one of the kinds {', '.join(KINDS)}, not {kind_id!r}.")
    return KINDS[kind_id]


__all__ = ["KINDS", "BadChannel", "Kind", "Letter", "choices", "kind_of"]
