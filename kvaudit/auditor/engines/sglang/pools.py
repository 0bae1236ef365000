"""Pools of SGLang by data-parallel rank: a request lives on one rank, so the smallest counts.

``/v1/loads`` labels its ranks but is a periodic snapshot that starts at 0; ``internal_states`` of
the server information come in order of arrival and carry no rank; the top-level
``max_total_num_tokens`` is one rank's (``data_parallel_controller.py``); the gauge
``sglang:max_total_num_tokens`` repeats a rank's number on each of its tensor-parallel ranks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from kvaudit.auditor.engines import _json
from kvaudit.auditor.engines._prometheus import Metrics
from kvaudit.auditor.engines.answers import Answers
from kvaudit.auditor.readings import (
    POOL_TOLERANCE,
    RankPool,
    Reading,
    differing,
    largest,
    smallest_pool,
    tokens,
    unknown,
    whole_number,
)

MOST_RANKS = _json.LONGEST_LIST


def rank_pools(
    where: str,
    info: Mapping[str, Any],
    states: Sequence[Mapping[str, Any]],
    loads: Mapping[str, Any],
    metrics: Metrics,
    answers: Answers,
) -> tuple[tuple[RankPool, ...], list[str], list[str]]:
    """Every rank's pool, sentences about what did not fit, and the clauses of sources that contradict each other. A
    rank that is missing is there with an unknown pool, so that no minimum is taken without it."""
    top = tokens(info.get("max_total_num_tokens"), f"{where} max_total_num_tokens")
    sources = [_from_loads(loads), _from_states(where, states), _from_metrics(metrics)]
    expected = max(_declared_ranks(info), len(states), *(len(source) for source in sources), 1)
    notes: list[str] = []
    unlike: list[str] = []
    if expected == 1:
        sources.append([RankPool("0", top)])
    complete = [source for source in sources if len(source) == expected and smallest_pool(source).known]
    if complete:
        chosen = min(complete, key=lambda source: smallest_pool(source).value or 0)
        if smallest_pool(chosen).value == smallest_pool(complete[0]).value:
            chosen = complete[0]
        else:
            notes.append(
                f"{differing(smallest_pool(complete[0]), smallest_pool(chosen))}: the smaller one counts"
            )
        unlike += _contradictions([smallest_pool(source) for source in complete])
    else:
        chosen, said = _incomplete(sources, expected, top, answers)
        notes.extend(said)
    smallest = smallest_pool(chosen)
    if top.known and smallest.known and (top.value or 0) < (smallest.value or 0):
        notes.append(f"{top.source} is {top.value}, less than any rank's {smallest.value}: it counts too")
        chosen = [*chosen, RankPool("top level", top)]
        unlike += _contradictions([top, smallest])
    return tuple(_with_window(chosen, where, states, metrics)), notes, list(dict.fromkeys(unlike))


def _declared_ranks(info: Mapping[str, Any]) -> int:
    """``dp_size * attn_dp_size``: since 0.5.22 ``--enable-dp-attention`` moves the width from the
    first to the second; before, the second does not exist."""
    width = 1
    for name in ("dp_size", "attn_dp_size"):
        size = whole_number(info.get(name))
        if size is not None and 0 < size <= MOST_RANKS:
            width *= size
    return min(width, MOST_RANKS)


def _from_loads(loads: Mapping[str, Any]) -> list[RankPool]:
    """One entry per rank label; 0 is a snapshot that was not published yet: unknown."""
    found: dict[str, list[Reading[int]]] = {}
    for position, item in enumerate(_json.sequence(loads.get("loads"))):
        load = _json.mapping(item)
        label = whole_number(load.get("dp_rank"))
        name = str(label) if label is not None and 0 <= label < MOST_RANKS else f"entry {position}"
        pool = tokens(load.get("max_total_num_tokens"), "GET /v1/loads loads[].max_total_num_tokens")
        found.setdefault(name, []).append(pool)
    return [RankPool(name, _least(pools)) for name, pools in found.items()]


def _from_states(where: str, states: Sequence[Mapping[str, Any]]) -> list[RankPool]:
    source = f"{where} internal_states[].memory_usage.token_capacity"
    return [
        RankPool(
            f"unlabelled {position}",
            tokens(_json.mapping(state.get("memory_usage")).get("token_capacity"), source),
        )
        for position, state in enumerate(states, start=1)
    ]


def _from_metrics(metrics: Metrics) -> list[RankPool]:
    found: dict[str, list[Reading[int]]] = {}
    for sample in metrics.samples("sglang:max_total_num_tokens"):
        pool = tokens(sample.value, "GET /metrics sglang:max_total_num_tokens")
        found.setdefault(_json.label(sample.labels.get("dp_rank", "0"), 20), []).append(pool)
    return [RankPool(rank, _least(pools)) for rank, pools in found.items()]


def _least(pools: Sequence[Reading[int]]) -> Reading[int]:
    """The smallest of several numbers for one rank; unknown while one is."""
    return smallest_pool(RankPool("", pool) for pool in pools)


def _incomplete(
    sources: Sequence[Sequence[RankPool]], expected: int, top: Reading[int], answers: Answers
) -> tuple[list[RankPool], list[str]]:
    """No source knows every rank: show the best one, and an unknown pool for what is missing."""
    best = max(sources, key=lambda source: sum(rank.pool.known for rank in source))
    known = sum(rank.pool.known for rank in best)
    if not known and not top.known:
        why = _json.why_not(answers, "/v1/loads", "/server_info", "/get_server_info")
        pools = list(best) or [RankPool("0", unknown(f"no pool: {why}"))]
        return pools, []
    if not known:
        best = [RankPool("one of them", top)]
        known = 1
    missing = expected - len(best)
    pools = [*best]
    if missing > 0:
        absent = unknown(f"{missing} of {expected} data-parallel ranks report no pool")
        pools.append(RankPool("missing", absent))
    return pools, [f"only {known} of {expected} data-parallel ranks tell their pool, and the smallest counts"]


def _contradictions(pools: Sequence[Reading[int]]) -> tuple[str, ...]:
    """One process tells one number everywhere; pools that differ by more than two draws do are of two."""
    most, unlike = largest(pools)
    least = smallest_pool(RankPool("", pool) for pool in pools)
    apart = (most.value or 0) - (least.value or 0) if most is not None else 0
    return unlike if apart > POOL_TOLERANCE * (least.value or 1) else ()


def _with_window(
    ranks: Sequence[RankPool], where: str, states: Sequence[Mapping[str, Any]], metrics: Metrics
) -> list[RankPool]:
    """Add the sliding-window pool of hybrid models. The states have no rank order, so their
    smallest window stands for every rank; null everywhere means that there is none."""
    source = f"{where} internal_states[].memory_usage.token_capacity_swa"
    memory = [_json.mapping(state.get("memory_usage")) for state in states]
    values = [used["token_capacity_swa"] for used in memory if "token_capacity_swa" in used]
    if any(value is not None for value in values):
        window = _least([tokens(used.get("token_capacity_swa"), source) for used in memory])
        return [replace(rank, sliding_window=window) for rank in ranks]
    name = "sglang:max_total_num_tokens_swa"
    gauges = [tokens(sample.value, f"GET /metrics {name}") for sample in metrics.samples(name)]
    # The gauge is exported as 0 by models without a window: only a number says that there is one.
    known = [gauge for gauge in gauges if gauge.known]
    if known and not values:
        window = min(known, key=lambda gauge: gauge.value or 0)
        return [replace(rank, sliding_window=window) for rank in ranks]
    return list(ranks)
