"""Pins of the fleet and of one deployment: what runs, what policy allows, who said so and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from django.db.models import Q

from kvaudit.auditor import engines
from kvaudit.auditor.verdict import Verdict
from kvaudit.server.accounts.models import User
from kvaudit.server.fleet import pins as pinning
from kvaudit.server.fleet.models import Deployment, Node, NodeSnapshot, Pin
from kvaudit.server.fleet.pins import InForce, PinState
from kvaudit.server.web.kit import listing
from kvaudit.server.web.kit.listing import choice, position, text

PAGE_SIZE = 100
MOST_ENDED = 50

WORDS: Mapping[PinState, tuple[str, str]] = {
    PinState.OUTSIDE: (Verdict.FAIL, "outside its pin"),
    PinState.UNDECIDED: (Verdict.INCONCLUSIVE, "not decided"),
    PinState.UNREAD: ("", "not read yet"),
    PinState.UNPINNED: ("", "no pin"),
    PinState.MET: (Verdict.PASS, "pin met"),
}
"""State -> kind of its mark, and its words."""


@dataclass(frozen=True, slots=True)
class BuildRow:
    """An engine and version that nodes of a deployment run, against the pin of that engine."""

    engine: str
    version: str
    digests: Sequence[str]
    state: PinState
    held: InForce | None

    @property
    def mark(self) -> tuple[str, str]:
        return WORDS[self.state]

    @property
    def exactly(self) -> str:
        """The range that allows this build alone, "" where it cannot be told exactly."""
        return pinning.exactly(self.version)

    @property
    def pin_text(self) -> str:
        """The pin that `exactly` makes, as people write it."""
        return f"{self.engine}{self.exactly}"

    @property
    def why_not(self) -> str:
        return pinning.why_not(self.version)


@dataclass(frozen=True, slots=True)
class PinRow:
    slug: str
    team: str
    builds: Sequence[BuildRow]
    state: PinState
    unread: bool  # a node was never read

    @property
    def mark(self) -> tuple[str, str]:
        return WORDS[self.state]

    @property
    def position(self) -> str:
        """The sort key: the worst first, then by name."""
        return f"{list(PinState).index(self.state)}~{self.slug}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Filters(listing.Filters):
    q: str = text()
    state: str = choice(PinState)
    after: str = position()
    before: str = position()


@dataclass(frozen=True, slots=True)
class NodeRow:
    node: Node
    snapshot: NodeSnapshot | None
    state: PinState
    held: InForce | None

    @property
    def mark(self) -> tuple[str, str]:
        return WORDS[self.state]


@dataclass(frozen=True, slots=True)
class DeploymentPins:
    """Everything about the pins of one deployment."""

    state: PinState
    builds: Sequence[BuildRow]
    nodes: Sequence[NodeRow]
    held: Sequence[InForce]
    own: Sequence[Pin]
    ended: Sequence[Pin]

    @property
    def mark(self) -> tuple[str, str]:
        return WORDS[self.state]


def all_rows(user: User) -> list[PinRow]:
    """Every active deployment that the user sees; four narrow queries."""
    seen = Deployment.objects.visible_to(user).active()
    names = list(seen.values_list("pk", "slug", "team__slug"))
    ids = [pk for pk, _, _ in names]
    builds: dict[int, dict[tuple[str, str], list[str]]] = {}
    for pk, engine, version, digest in (
        NodeSnapshot.objects.filter(current=True, node__valid_to=None, node__deployment_id__in=ids)
        .exclude(facts__kind="router")  # routers answer for their workers and have no version of their own
        .order_by()
        .values_list("node__deployment_id", "engine", "version", "digest")
        .distinct()
    ):
        builds.setdefault(pk, {}).setdefault((engine, version), []).append(digest)
    nodes = Node.objects.current().filter(deployment_id__in=ids)
    unread = set(nodes.exclude(snapshots__current=True).values_list("deployment_id", flat=True))
    fleets, own = current_pins(ids)
    rows = []
    for pk, slug, team in names:
        held = pinning.in_force((*fleets, *own.get(pk, ())), pk)
        shown = build_rows(builds.get(pk, {}), held)
        states = [each.state for each in shown] + [PinState.UNREAD] * (pk in unread)
        rows.append(PinRow(slug, team, shown, pinning.worst(states), pk in unread))
    return rows


def build_rows(
    builds: Mapping[tuple[str, str], Sequence[str]], held: Mapping[str, InForce]
) -> list[BuildRow]:
    """``builds`` maps engine and version to the fingerprints of the nodes that run it."""
    return [
        BuildRow(
            engine,
            version,
            sorted(set(digests)),
            pinning.state_of(version, held.get(engine)),
            held.get(engine),
        )
        for (engine, version), digests in sorted(builds.items())
    ]


def current_pins(ids: Sequence[int]) -> tuple[list[Pin], dict[int, list[Pin]]]:
    """(the fleet's pins, deployment id -> its own); one query."""
    fleets: list[Pin] = []
    own: dict[int, list[Pin]] = {}
    for pin in Pin.objects.current().filter(Q(deployment=None) | Q(deployment_id__in=ids)):
        if pin.deployment_id is None:
            fleets.append(pin)
        else:
            own.setdefault(pin.deployment_id, []).append(pin)
    return fleets, own


def counts(rows: Sequence[PinRow]) -> dict[PinState, int]:
    """How many deployments stand how; all states, worst first."""
    return {state: sum(row.state is state for row in rows) for state in PinState}


def pins_in_words(rows: Sequence[PinRow]) -> str:
    """``2 outside its pin, 5 no pin`` as a sentence with numbers; what is met comes last."""
    words = {
        PinState.OUTSIDE: "outside the pin",
        PinState.UNDECIDED: "not decided",
        PinState.UNREAD: "not read yet",
        PinState.UNPINNED: "without pin",
        PinState.MET: "met",
    }
    parts = [f"{count:,} {words[state]}" for state, count in counts(rows).items() if count]
    noun = "deployment" if len(rows) == 1 else "deployments"
    return f"{len(rows):,} {noun}: {', '.join(parts)}" if rows else "no deployment yet"


def listed(rows: Sequence[PinRow], filters: Filters) -> listing.Page:
    """The page of the rows that satisfy the filters, the worst first."""
    words = filters.q.lower().split()
    kept = [
        row
        for row in rows
        if all(word in f"{row.slug} {row.team}".lower() for word in words)
        and (not filters.state or row.state == filters.state)
    ]
    kept.sort(key=lambda row: row.position)
    return listing.sorted_page(kept, lambda row: row.position, filters, size=PAGE_SIZE)


def fleet_pins() -> list[InForce]:
    """What holds where a deployment has no pin of its own, the shipped pin included; one query."""
    held = pinning.in_force(Pin.objects.current().filter(deployment=None), None)
    return [held[engine] for engine in sorted(held)]


def deployment_pins(deployment: Deployment) -> DeploymentPins:
    """Four queries."""
    pins = list(Pin.objects.current().applying_to(deployment))
    held = pinning.in_force(pins, deployment.pk)
    nodes: list[NodeRow] = []
    builds: dict[tuple[str, str], list[str]] = {}
    for node in Node.objects.current().filter(deployment=deployment).with_snapshot().order_by("name"):
        found: list[NodeSnapshot] = getattr(node, "current_snapshots", [])
        snapshot = found[0] if found else None
        if snapshot is not None and snapshot.facts.get("kind") == "router":
            continue
        if snapshot is None:
            nodes.append(NodeRow(node, None, PinState.UNREAD, None))
            continue
        pin = held.get(snapshot.engine)
        nodes.append(NodeRow(node, snapshot, pinning.state_of(snapshot.version, pin), pin))
        builds.setdefault((snapshot.engine, snapshot.version), []).append(snapshot.digest)
    ended = Pin.objects.filter(deployment=deployment).exclude(valid_to=None).order_by("-valid_to", "-pk")
    return DeploymentPins(
        state=pinning.worst(each.state for each in nodes),
        builds=build_rows(builds, held),
        nodes=nodes,
        held=[held[engine] for engine in sorted(held)],
        own=[pin for pin in pins if pin.deployment_id],
        ended=list(ended[:MOST_ENDED]),
    )


def engine_names(*more: str) -> list[str]:
    """Engines that a pin can be for: those with an adapter, and ``more`` that were read or pinned."""
    versioned = (name for name in more if name and not engines.describe(name).by_pointers)
    return sorted({*engines.RECOGNISABLE, *versioned})
