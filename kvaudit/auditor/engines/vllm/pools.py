"""The KV pool of vLLM per engine, from the labels of ``vllm:cache_config_info``.

Traps, all recorded from real servers or reported: block 0 is never used; ``num_gpu_blocks`` is summed over
data-parallel engines and the sum is repeated on every engine's line; and for hybrid models ``num_gpu_blocks x
block_size`` bounds nothing. It overstates where layers keep windows (51,200 against 12,900 in truth), and understates
where the label is the smallest of several sizes (vllm#49878, vllm#51163) or stale (vllm#42966: 16 for a real 528).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kvaudit.auditor.engines import _json
from kvaudit.auditor.engines._prometheus import Metrics
from kvaudit.auditor.engines.answers import Answers
from kvaudit.auditor.readings import RankPool, Reading, derived, tokens, unknown

CACHE_INFO = "vllm:cache_config_info"
_SOURCE = f"GET /metrics {CACHE_INFO}"

Lines = Sequence[Mapping[str, str]]


def cache_lines(metrics: Metrics) -> Lines:
    """The labels of each line; one line per ``engine`` index, or one without it (old releases)."""
    return [sample.labels for sample in metrics.samples(CACHE_INFO)]


def hybrid(lines: Lines, context: Reading[int]) -> bool | None:
    """Whether the model keeps several kinds of KV cache; None when the labels do not tell.

    A window, Mamba state or second block size may be named; that none is proves nothing, since models that mix windows
    leave the labels at None. From 0.24 the two figures can tell.
    """
    engines = _engines(lines)
    figures = {_mixes(line, engines, context) for line in lines}
    if True in figures or any(_named(line.get("mamba_block_size")) or _two_blocks(line) for line in lines):
        return True
    windowed = any(_named(line.get("sliding_window")) for line in lines)
    if figures == {False}:
        return None if windowed else False
    return True if windowed else None


def rank_pools(lines: Lines, answers: Answers) -> tuple[tuple[RankPool, ...], list[str]]:
    """The usable pool of every engine index (one block less than there is), and sentences."""
    if not lines:
        return (RankPool("0", unknown(f"no {CACHE_INFO}: {_json.why_not(answers, '/metrics')}")),), []
    notes: list[str] = []
    engines = _engines(lines)
    found: dict[str, list[RankPool]] = {}
    for line in lines:
        engine = _json.label(line.get("engine", "0"), 20)
        found.setdefault(engine, []).append(_rank(engine, line, engines))
    # One line per engine is written; two that differ are two processes behind one address.
    ranks = []
    for engine, told in sorted(found.items()):
        differ = len({(rank.pool.value, rank.uniform and rank.uniform.value) for rank in told}) > 1
        unequal = RankPool(engine, unknown(f"{_SOURCE} has unequal lines for engine {engine}"))
        ranks.append(unequal if differ else told[0])
    if len(ranks) > 1:
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


def _two_blocks(line: Mapping[str, str]) -> bool:
    effective = tokens(line.get("effective_attention_block_size"), "effective_attention_block_size").value
    size = tokens(line.get("block_size"), "block_size").value
    return effective is not None and size is not None and effective != size


def _mixes(line: Mapping[str, str], engines: int, context: Reading[int]) -> bool | None:
    """By the figures of one line: False where the size is blocks x block size, but for the part of its last block that
    a context leaves empty; True where it is less. More, or a whole part, may as well be context parallelism or blocks
    of several engines in one sum: None."""
    size = tokens(line.get("kv_cache_size_tokens"), "kv_cache_size_tokens").value
    block = tokens(line.get("block_size"), "block_size").value
    product = _product(line, engines)
    if size is None or product is None or block is None or size > product:
        return None
    if size == product or (context.value and size * (context.value + block) >= product * context.value):
        return False
    return None if product % size == 0 else True


def _rank(engine: str, line: Mapping[str, str], engines: int) -> RankPool:
    block = _block(line)
    size = tokens(line.get("kv_cache_size_tokens"), f"{_SOURCE} label kv_cache_size_tokens")
    if size.known:
        return RankPool(engine, _less_null_block(size, block))
    product = _product(line, engines)
    if product is None:
        why = f"{_SOURCE} has neither kv_cache_size_tokens nor num_gpu_blocks and block_size"
        if line.get("num_gpu_blocks") == "None":
            why = f"{_SOURCE} label num_gpu_blocks is None: vLLM 0.8 leaves it to the engine process"
        return RankPool(engine, unknown(why))
    source = f"{_SOURCE} labels num_gpu_blocks x block_size"
    source += f" / {engines} engines" if engines > 1 else ""
    uniform = _less_null_block(tokens(product, source), block)
    if not uniform.known:
        return RankPool(engine, uniform)
    why = (
        f"{uniform.source} is {uniform.value}, which bounds nothing: a hybrid model has less, or more where block_size "
        "is stale; vLLM 0.24 and later tell kv_cache_size_tokens; where all layers keep one kind of cache, declare "
        "the condition hybrid_kv: false"
    )
    return RankPool(engine, unknown(why), uniform=uniform)


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
