"""How much of what a trial may have read was ours, and that this never says more than a pool's pages show."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from kvaudit.auditor.checks.canary.counting import PIECES
from kvaudit.auditor.checks.canary.dirtying import Record
from kvaudit.auditor.checks.serving import Role
from kvaudit.lab.config import FreeList
from kvaudit.lab.pool import KVPool

POOL = 10_000


def record(*spans: tuple[float, float], pools: dict[int, int | None] | None = None, **more: bool) -> Record:
    """Readings after each span of (tokens, own share), all served by node 0."""
    made = Record([Role("unified", pools or {0: POOL})], **more)
    made.note({0: 0}, 0)
    served = own = 0.0
    for tokens, share in spans:
        served, own = served + tokens, own + tokens * share
        made.note({0: served}, own)
    return made


FULL = (15_000, 1.0)


@pytest.mark.parametrize(
    ("made", "window", "share"),
    [
        (record(FULL, (1_000, 1.0)), (1, 2, 2), 1.0),
        (record((10_000, 1.0), (1_000, 1.0)), (1, 2, 2), 11 / 15),  # older than the record is others'
        (record((8_000, 1.0), (1_000, 1.0)), (1, 2, 2), 0.0),  # no whole pool was served yet
        (record(FULL, (1_000, 0.25)), (1, 2, 2), 0.25),  # plant to read
        (record(FULL, (4_000, 0.0), (1_000, 1.0)), (2, 3, 3), 0.2),  # the last half pool
        (record(FULL, (5_000, 0.0), (5_000, 1.0)), (2, 3, 3), 1 / 3),  # half to one and a quarter pools ago
        (record(FULL, (7_500, 0.0), (5_000, 1.0)), (2, 3, 3), 0.0),  # all of the narrow stretch
        (record(FULL, (1_000, 1.0), (1_000, 0.0)), (1, 2, 3), 0.5),  # others before the answer was complete
        (record((1_000, 1.0), last_freed_first=True), (0, 1, 1), 1.0),
        (record(FULL, (4_000, 0.0), (1_000, 1.0), last_freed_first=True), (2, 3, 3), 1.0),
        (record(FULL, (1_000, 1.0), pools={0: None}), (1, 2, 2), 0.0),
        (
            record(FULL, (1_000, 1.0), pools={0: 5_000, 1: 5_000}),
            (1, 2, 2),
            0.0,
        ),  # one replica served nothing
    ],
)
def test_the_smallest_share_of_every_stretch_counts(
    made: Record, window: tuple[int, int, int], share: float
) -> None:
    assert made.share(*window) == pytest.approx(share)


def test_the_nodes_of_a_role_add_up_and_roles_do_not() -> None:
    """Four replicas that served a quarter each served everything; a pair counts a prompt on both sides."""
    replicas = Record([Role("unified", dict.fromkeys(range(4), 2_500))])
    pair = Record([Role("prefill", {0: POOL}), Role("decode", {1: POOL})])
    for made, nodes, each in ((replicas, 4, 0.25), (pair, 2, 1.0)):
        for own in (0.0, 20_000.0, 21_000.0):
            made.note(dict.fromkeys(range(nodes), 2 * own * each), own)
        assert made.share(1, 2, 2) == pytest.approx(0.5)
        assert made.missing() == 0


def test_a_decode_node_that_counts_no_prompts_is_filled_as_its_partner_is() -> None:
    made = Record([Role("prefill", {0: POOL}), Role("decode", {1: POOL})])
    for own in (0.0, 16_000.0, 17_000.0):
        made.note({0: own, 1: own / 100}, own)
    assert made.share(1, 2, 2) == pytest.approx(1.0)


@pytest.mark.parametrize("shown", [0.0, 0.5])
def test_counters_that_do_not_show_what_was_sent_prove_nothing(shown: float) -> None:
    made = Record([Role("unified", {0: POOL})])
    for own in (0.0, 30_000.0, 31_000.0):
        made.note({0: shown * own}, own)
    assert made.blind
    assert made.share(1, 2, 2) == 0.0


def test_a_counter_that_lags_does_not_hide_others() -> None:
    """Others' tokens that are shown a reading late count from there on."""
    made = Record([Role("unified", {0: POOL})])
    for served, own in ((0, 0), (20_000, 20_000), (21_000, 21_500), (23_000, 22_000)):
        made.note({0: float(served)}, own)
    assert made.share(1, 2, 3) == pytest.approx(0.5, abs=0.11)


PAGE = 64


@pytest.mark.parametrize("order", ["lifo", "fifo", "vllm-lru", "sglang-pd"])
@pytest.mark.parametrize("others", [0.0, 0.5, 0.8])
@pytest.mark.parametrize("bursts", [False, True])
def test_over_some_nights_it_claims_no_more_than_the_pages_hold(
    order: FreeList, others: float, bursts: bool
) -> None:
    """Pools of the lab: the own share of the pages that readers got, against what the counters would say."""
    claimed = held = 0.0
    for night in range(12):
        found = _night(order, others, bursts, Random(f"{order} {others} {bursts} {night}"))
        claimed += sum(share for share, _ in found)
        held += sum(pages for _, pages in found)
    assert claimed > 0
    assert held >= 0.97 * claimed


def _night(order: FreeList, others: float, bursts: bool, draw: Random) -> list[tuple[float, float]]:
    """(what is claimed, what the pages held) of 40 rounds beside others' requests."""
    pool = KVPool(512 * PAGE, PAGE, 2, order)
    ours = np.zeros(pool.pages, bool)
    made = Record([Role("unified", {0: pool.capacity})])
    served, own = 0, 0
    owed = 0.0  # others' tokens that are still to be served

    def serve(pages: int, mine: bool) -> float:
        nonlocal served, own, owed
        table = pool.reserve(pages)
        assert table is not None
        held = float(ours[table].mean())
        ours[table] = mine
        served, own = served + pages * PAGE, own + pages * PAGE * mine
        owed += pages * PAGE * others / (1 - others) if mine else 0.0
        pool.release(table)
        return held

    def let_others(now: bool) -> None:
        nonlocal owed
        while now and owed > 0:
            pages = draw.randrange(4, 40)
            serve(pages, False)
            owed -= pages * PAGE

    def read() -> int:
        return made.note({0: float(served)}, float(own))

    for _ in range(3 * pool.pages // 20):
        serve(20, False)
    served = own = 0
    owed = 0.0
    read()
    while made.missing() > 0:
        serve(pool.pages // PIECES, True)
        let_others(not bursts)
        read()
    found = []
    for _ in range(40):
        let_others(not bursts or draw.random() < 0.1)
        planted = read()
        serve(draw.randrange(32, 120), True)
        let_others(not bursts and draw.random() < 0.5)
        reading = read()
        held = serve(draw.randrange(2, 32), True)
        found.append(((planted, reading, read()), held))
    return [(made.share(*window), held) for window, held in found]
