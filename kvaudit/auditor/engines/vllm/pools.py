"""The KV pool of vLLM per engine, from the labels of ``vllm:cache_config_info``.

Three traps, all recorded from real servers: block 0 is never used; ``num_gpu_blocks`` is summed
over data-parallel engines and the sum is repeated on every engine's line; and for hybrid models
``num_gpu_blocks x block_size`` overstates (51,200 against 12,900 in truth).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kvaudit.auditor.engines import _json
from kvaudit.auditor.engines._prometheus import Metrics
from kvaudit.auditor.engines.answers import Answers
from kvaudit.auditor.readings import RankPool, Reading, derived, smallest_pool, tokens, unknown

CACHE_INFO = "vllm:cache_config_info"
_SOURCE = f"GET /metrics {CACHE_INFO}"

Lines = Sequence[Mapping[str, str]]


def cache_lines(metrics: Metrics) -> Lines:
    """The labels of each line; one line per ``engine`` index, or one without it (old releases)."""
    return [sample.labels for sample in metrics.samples(CACHE_INFO)]


def hybrid(lines: Lines) -> bool | None:
    """Whether the model keeps several kinds of KV cache; None when the labels do not tell.

    From 0.24 the two figures decide. Before, a window or Mamba state may be named; that none is
    named proves nothing, since models that mix windows leave the label at None.
    """
    engines = _engines(lines)
    figures = {_overstated(line, engines) for line in lines}
    if True in figures or any(_named(line.get("mamba_block_size")) for line in lines):
        return True
    windowed = any(_named(line.get("sliding_window")) for line in lines)
    if False in figures:
        return None if windowed else False
    return True if windowed else None


def rank_pools(
    lines: Lines, context: Reading[int], answers: Answers
) -> tuple[tuple[RankPool, ...], list[str]]:
    """The usable pool of every engine index (one block less than there is), and sentences."""
    if not lines:
        return (RankPool("0", unknown(f"no {CACHE_INFO}: {_json.why_not(answers, '/metrics')}")),), []
    notes: list[str] = []
    engines = _engines(lines)
    found: dict[str, list[Reading[int]]] = {}
    for line in lines:
        engine = _json.label(line.get("engine", "0"), 20)
        found.setdefault(engine, []).append(_usable(line, engines, context, notes))
    # One line per engine is written; two that differ are two processes behind one address.
    ranks = []
    for engine, pools in sorted(found.items()):
        differ = len({pool.value for pool in pools}) > 1
        pool = unknown(f"{_SOURCE} has unequal lines for engine {engine}") if differ else pools[0]
        ranks.append(RankPool(engine, pool))
    if len(ranks) > 1 and smallest_pool(ranks).known:
        notes.append(f"{len(ranks)} data-parallel engines; the pool is one engine's")
    return tuple(ranks), list(dict.fromkeys(notes))


def _engines(lines: Lines) -> int:
    return len({line.get("engine", "0") for line in lines}) or 1


def _named(label: str | None) -> bool:
    return label not in (None, "", "None", "0")


def _block(line: Mapping[str, str]) -> Reading[int]:
    """Tokens of the block that is lost: the larger of the sizes named (hybrid models name two)."""
    sizes = [
        tokens(line.get(label), f"{_SOURCE} label {label}")
        for label in ("block_size", "effective_attention_block_size")
    ]
    known = [size for size in sizes if size.known]
    return max(known, key=lambda size: size.value or 0) if known else sizes[0]


def _product(line: Mapping[str, str], engines: int) -> int | None:
    """Blocks of one engine times tokens per block."""
    blocks = tokens(line.get("num_gpu_blocks"), "num_gpu_blocks").value
    size = tokens(line.get("block_size"), "block_size").value
    return blocks // engines * size if blocks and size else None


def _overstated(line: Mapping[str, str], engines: int) -> bool | None:
    size = tokens(line.get("kv_cache_size_tokens"), "kv_cache_size_tokens").value
    product = _product(line, engines)
    return size < product if size and product else None


def _usable(line: Mapping[str, str], engines: int, context: Reading[int], notes: list[str]) -> Reading[int]:
    block = _block(line)
    size = tokens(line.get("kv_cache_size_tokens"), f"{_SOURCE} label kv_cache_size_tokens")
    if size.known:
        return _less_null_block(size, block)
    product = _product(line, engines)
    if product is None:
        if line.get("num_gpu_blocks") == "None":
            return unknown(
                f"{_SOURCE} label num_gpu_blocks is None: vLLM 0.8 leaves it to the engine process"
            )
        return unknown(f"{_SOURCE} has neither kv_cache_size_tokens nor num_gpu_blocks and block_size")
    source = f"{_SOURCE} labels num_gpu_blocks x block_size"
    source += f" / {engines} engines" if engines > 1 else ""
    upper = _less_null_block(tokens(product, source), block)
    if any(_named(line.get(label)) for label in ("sliding_window", "mamba_block_size")):
        return _upper_bound(upper, context, notes)
    if upper.known:
        notes.append(
            "before 0.24 vLLM tells only blocks x block size, which is too high for a model that mixes "
            "attention kinds: low confidence in the pool"
        )
    return upper


def _less_null_block(total: Reading[int], block: Reading[int]) -> Reading[int]:
    """Block 0 is reserved, and the figures count it (a real 0.27.1 hung on that one block)."""
    if not total.known or total.value is None:
        return total
    if not block.known or block.value is None:
        return unknown(f"{total.source} is {total.value} but the block size that it loses is unknown")
    usable = total.value - block.value
    if usable <= 0:
        return unknown(f"{total.source} is {total.value}, no more than the one block that is never used")
    return derived(usable, f"{total.source} less one block of {block.value}")


def _upper_bound(upper: Reading[int], context: Reading[int], notes: list[str]) -> Reading[int]:
    """The figure of a hybrid model is too high by an unknown factor: it may show that the pool is
    too small, never that it is large enough."""
    if not upper.known or upper.value is None:
        return upper
    if context.known and context.value is not None and upper.value < context.value:
        notes.append("the pool of this hybrid model is at most this: low confidence, the truth is smaller")
        return upper
    return unknown(
        f"{upper.source} is {upper.value}, which overstates a hybrid model's pool; "
        "vLLM 0.24 and later tell kv_cache_size_tokens"
    )
