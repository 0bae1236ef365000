"""What an engine is, in one place. Reader, checks, fleet file, pins and pages ask the descriptor; none of them knows an
engine by its name, so that a new one is a new package and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Tells = Literal["models", "version", "metrics", "configuration", "routes"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Surface:
    """What an engine may serve to somebody without a key. The check of open endpoints sends the ``reads`` and nothing
    else; that a route which acts is open is concluded from what they answer."""

    reads: Mapping[str, Tells] = field(default_factory=dict)
    """Allow-listed GETs that are harmless, in order -> what their answer tells. Of several that tell the configuration
    the later are old names, asked where the one before is 404."""
    listed: bool = False
    """Unguarded routes are seen in its list of routes alone: without the list there is no verdict."""
    guarded: tuple[str, ...] = ()
    """Prefixes that its key guards; whether one is set shows at its list of models."""
    acting: tuple[str, ...] = ()
    """Routes that act, and are open where they are listed unless they lie below a guarded prefix and a key is set. One
    that ends in * stands for all that begin so."""
    inert: tuple[str, ...] = ()
    """Routes that only tell or serve: whatever else is listed and open is not known to kvaudit, and may act."""
    completions: tuple[str, ...] = ()
    """Routes that serve completions and lie outside the prefixes that its key guards."""
    tokenizers: tuple[str, ...] = ()
    scaling: tuple[str, ...] = ()
    inference: tuple[str, ...] = ()
    """Routes that run the model, tell no completion, and lie outside the prefixes that its key guards."""
    keys: tuple[str, ...] = ()
    """Fields of its configuration: while all of them are null, the routes of ``unlocked`` act for everybody."""
    unlocked: str = ""
    """What acts where no key is set."""

    def telling(self, what: Tells) -> tuple[str, ...]:
        """The paths whose answers tell this, in order."""
        return tuple(path for path, told in self.reads.items() if told == what)


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """One engine. Instances stand in the ``__init__.py`` of each engine's package, beside nothing that is slow to
    import: the gate reads all of them at its start."""

    id: str
    title: str
    order: int
    """Place among the adapters that are tried on a node whose engine is not declared, and on pages."""
    aliases: tuple[str, ...] = ()
    """Other spellings of its id, in lower case."""
    images: tuple[str, ...] = ()
    """Ends of the names of its own images, in lower case: their tags are its releases."""
    by_pointers: bool = False
    """A pool that the operator declares with JSON pointers: never recognised by itself, without roles or releases."""

    roles_since: str = ""
    """The first release in which processes have roles (prefill, decode); "" where nobody looked."""
    input_margin: int | None = None
    """Tokens that it keeps back from min(context, pool) in its own input limit; None where no such formula is known."""
    cached_tokens_flag: str = ""
    """The flag with which it reports cached tokens in its usage block; "" where it needs none, or cannot."""
    connectors_since: Mapping[str, str] = field(default_factory=dict)
    """Connector -> the release from which a configured one registers metrics: where none are, it is not there."""
    unequal_pages_since: Mapping[str, str] = field(default_factory=dict)
    """Transport -> the release from which it converts between pages of unequal sizes."""
    features_since: Mapping[str, str] = field(default_factory=dict)
    """Trait of a build -> the first release that has it."""
    always_shown: frozenset[str] = frozenset()
    """Traits that every process of their releases shows, whatever its arguments and role. Of the others at least one of
    the newest release that a version claims has to be there."""
    features_until: Mapping[str, str] = field(default_factory=dict)
    """Trait of a build -> the last release that may have it."""
    surface: Surface = Surface()
