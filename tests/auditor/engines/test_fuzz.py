"""No bytes make an adapter raise, and no nonsense makes a number: every adapter, every path.

A known pool or context is a whole number of 1 to 10^12 that stands in the answers, or comes out of
numbers there by the derivation that docs/engines.md names.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from kvaudit.auditor.engines import RECOGNISABLE, get
from kvaudit.auditor.engines.answers import Answer
from kvaudit.auditor.engines.contract import Adapter
from kvaudit.auditor.engines.generic.adapter import with_pointers
from kvaudit.auditor.readings import LARGEST_TOKENS, EngineFacts, fingerprint
from tests.auditor.engines import payloads
from tests.auditor.engines.payloads import BUILDERS, Served, answers

ENGINES: tuple[Adapter, ...] = tuple(map(get, RECOGNISABLE))
FEW = settings(max_examples=100, deadline=None)

EVERY = [(name, build) for name, builds in BUILDERS.items() for build in builds]

DEEP_LIST = b"[" * 10_000 + b"]" * 10_000
DEEP_OBJECT = b'{"version":' * 10_000 + b"1" + b"}" * 10_000
NASTY: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    -1,
    -681_280,
    1.5,
    10**30,
    1e308,
    "",
    "681280x",
    "NaN",
    "\x00\ud7ff",
    "x" * 5000,
    [],
    [None],
    [[1]],
    {},
    {"data": {}},
    [{}] * 5000,
)
numbers_of_any_kind = st.one_of(
    st.integers(), st.integers(10**12 - 2, 10**12 + 2), st.floats(allow_nan=False)
)
json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), numbers_of_any_kind, st.text(max_size=12)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(
            st.sampled_from(
                [
                    "version",
                    "internal_states",
                    "loads",
                    "workers",
                    "data",
                    "parent",
                    "max_model_len",
                    "max_total_num_tokens",
                    "memory_usage",
                    "token_capacity",
                    "token_capacity_swa",
                    "dp_rank",
                    "dp_size",
                    "attn_dp_size",
                    "max_req_input_len",
                    "startup_time",
                    "disaggregation_mode",
                    "disaggregation",
                    "mode",
                    "url",
                    "worker_type",
                    "kvCacheStats",
                    "maxNumBlocks",
                    "tokensPerBlock",
                    "disaggregated_params",
                    "owned_by",
                    "id",
                    "paths",
                ]
            ),
            inner,
            max_size=6,
        ),
    ),
    max_leaves=20,
)
metric_lines = st.builds(
    lambda name, labels, value: f"{name}{{{labels}}} {value}\n",
    st.sampled_from(
        [
            "sglang:max_total_num_tokens",
            "sglang:max_total_num_tokens_swa",
            "sglang:context_len",
            "vllm:cache_config_info",
            "vllm:nixl_num_kv_expired_reqs_total",
            "trtllm_kv_cache_max_blocks",
            "trtllm_kv_cache_tokens_per_block",
            "trtllm_model_config_info",
            "process_start_time_seconds",
            "dynamo_frontend_x",
        ]
    ),
    st.one_of(
        st.text(max_size=40),
        st.builds(
            lambda engine, blocks, size, total: (
                f'engine="{engine}",num_gpu_blocks="{blocks}",block_size="{size}",'
                f'kv_cache_size_tokens="{total}",pid="{engine}",dp_rank="{engine}"'
            ),
            *[
                st.one_of(st.integers(-3, 10**13), st.sampled_from(["None", "nan", "1e30", ""]))
                for _ in range(4)
            ],
        ),
    ),
    st.one_of(st.integers(-3, 10**13), st.floats(), st.text(max_size=5)),
)

_NUMBER = re.compile(rb"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")


def numbers_in(seen: Mapping[str, Answer]) -> set[int]:
    """Every whole number that stands anywhere in the bodies."""
    found = set()
    for answer in seen.values():
        for match in _NUMBER.finditer(answer.body):
            value = float(match.group())
            if value.is_integer() and abs(value) <= LARGEST_TOKENS:
                found.add(int(value))
    return found


def derivable(engine: str, pool: int, numbers: set[int]) -> bool:
    """Whether the pool stands in the answers or comes from two numbers there."""
    if engine == "trtllm":
        return any(part and pool % part == 0 and pool // part in numbers for part in numbers)
    if engine == "vllm":
        blocks = [size for size in numbers if 0 < size <= pool]
        return any(
            pool + size in numbers
            or any(whole // share * size == pool + size for whole in numbers for share in (1, 2, 3))
            for size in [*blocks, *(size for size in numbers if size > pool)]
        )
    return pool in numbers


def texts(facts: EngineFacts) -> Iterator[str]:
    """Whatever a stranger's text could have got into: it is stored and shown."""
    yield from facts.notes
    yield from facts.components
    yield from (rank.rank for rank in facts.ranks)
    yield from (text for worker in facts.workers for text in (worker.url, worker.role, worker.model))
    yield from (text for exposure in facts.exposures for text in (exposure.what, exposure.where))
    readings = (facts.version, facts.model, facts.revision, facts.context, facts.pool, facts.input_limit)
    for reading in (*readings, facts.role, facts.process, *facts.settings.values()):
        yield reading.source
        yield str(reading.value)


def sane(engine: Adapter, seen: Mapping[str, Answer]) -> EngineFacts:
    """Ask the adapter everything and hold it to the promise; returns the facts."""
    assert engine.recognises(seen) in (True, False)
    facts = engine.facts(seen)
    for reading in (facts.pool, facts.context, facts.input_limit, *(rank.pool for rank in facts.ranks)):
        if reading.known:
            assert type(reading.value) is int
            assert 0 < reading.value <= LARGEST_TOKENS
    numbers = numbers_in(seen) if facts.pool.known or facts.context.known else set()
    if facts.pool.value is not None:
        assert derivable(engine.id, facts.pool.value, numbers), facts.pool
        assert all(rank.usable.known and (rank.usable.value or 0) >= facts.pool.value for rank in facts.ranks)
    if facts.context.value is not None:
        assert facts.context.value in numbers, facts.context
    if facts.role.known:
        assert facts.role.value in ("prefill", "decode", "unified")
    if facts.kind == "router":
        assert not facts.pool.known
    assert all(isinstance(value, bool) for value in (*facts.conditions.values(), *facts.features.values()))
    assert len(repr(facts.notes)) < 100_000
    assert all(text.isprintable() for text in texts(facts)), facts
    json.dumps(fingerprint(facts).as_json(), allow_nan=False).encode()  # can be stored
    return facts


@pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: engine.id)
@FEW
@given(data=st.data())
def test_arbitrary_bytes(engine: Adapter, data: st.DataObject) -> None:
    paths = [step.path for step in engine.plan]
    body = st.one_of(
        st.binary(max_size=200), st.text(max_size=200).map(lambda text: text.encode("utf-8", "replace"))
    )
    status = st.sampled_from([200, 200, 200, 401, 404, 503, 0])
    seen = {
        path: Answer(path, data.draw(status), data.draw(body))
        for path in data.draw(st.lists(st.sampled_from(paths), unique=True))
    }
    sane(engine, seen)


@pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: engine.id)
@FEW
@given(data=st.data())
def test_arbitrary_json_and_metrics(engine: Adapter, data: st.DataObject) -> None:
    seen = {}
    for step in engine.plan:
        if "metrics" in step.path and data.draw(st.booleans()):
            body = "".join(data.draw(st.lists(metric_lines, max_size=6))).encode("utf-8", "replace")
        else:
            body = json.dumps(data.draw(json_values)).encode()
        seen[step.path] = Answer(step.path, 200, body)
    sane(engine, seen)


@FEW
@given(which=st.sampled_from(EVERY), data=st.data())
def test_truncated_answers(which: tuple[str, Callable[[], Served]], data: st.DataObject) -> None:
    name, build = which
    payload = build()
    path = data.draw(
        st.sampled_from([path for path, (status, body, _) in payload.items() if status == 200 and body])
    )
    status, body, kind = payload[path]
    payload[path] = (status, body[: data.draw(st.integers(0, len(body)))], kind)
    sane(get(name), answers(payload))


@FEW
@given(which=st.sampled_from(EVERY), data=st.data())
def test_flipped_and_repeated_bytes(which: tuple[str, Callable[[], Served]], data: st.DataObject) -> None:
    name, build = which
    payload = build()
    path = data.draw(
        st.sampled_from([path for path, (status, body, _) in payload.items() if status == 200 and body])
    )
    status, body, kind = payload[path]
    at = data.draw(st.integers(0, len(body)))
    inserted = data.draw(
        st.one_of(st.binary(max_size=8), st.sampled_from([b'"', b"\\", b"{", b"}", b"-", b"e9"]))
    )
    cut = data.draw(st.integers(0, 8))
    changed = body[:at] + inserted + body[at + cut :]
    lines = changed.split(b"\n")
    repeated = lines + data.draw(st.lists(st.sampled_from(lines), max_size=3))
    payload[path] = (status, b"\n".join(repeated) if data.draw(st.booleans()) else changed, kind)
    sane(get(name), answers(payload))


def places(tree: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every place of a JSON tree, the root included."""
    yield at
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield from places(value, (*at, key))
    elif isinstance(tree, list):
        for position, value in enumerate(tree):
            yield from places(value, (*at, position))


def changed(tree: Any, at: tuple[Any, ...], value: Any) -> Any:
    if not at:
        return value
    copied = copy.deepcopy(tree)
    parent = copied
    for key in at[:-1]:
        parent = parent[key]
    parent[at[-1]] = value
    return copied


@pytest.mark.parametrize(
    ("name", "build"),
    [
        ("sglang", payloads.sglang_dp2_0_5_22),
        ("sglang", payloads.sglang_rust_0_5_22),
        ("sglang", payloads.sglang_router),
        ("vllm", payloads.vllm_hybrid),
        ("trtllm", payloads.trtllm_drained),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_wrong_type_at_every_key(name: str, build: Callable[[], Served]) -> None:
    engine, payload = get(name), build()
    seen = answers(payload)
    tried = 0
    for path, (status, body, _) in payload.items():
        if status != 200 or not body.startswith((b"{", b"[")):
            continue
        tree = json.loads(body)
        for place in places(tree):
            for value in NASTY[:-1] if len(place) > 1 else NASTY:
                # By hand: the rest of the answers is the same for thousands of changes.
                mutated = json.dumps(changed(tree, place, value)).encode()
                sane(engine, {**seen, path: Answer(path, 200, mutated)})
                tried += 1
    assert tried > 100


@FEW
@given(which=st.sampled_from(EVERY), data=st.data())
def test_wrong_types_at_several_keys(which: tuple[str, Callable[[], Served]], data: st.DataObject) -> None:
    name, build = which
    payload = build()
    for path, (status, body, kind) in payload.items():
        if status == 200 and body.startswith((b"{", b"[")):
            tree = json.loads(body)
            for _ in range(data.draw(st.integers(0, 3))):
                place = data.draw(st.sampled_from(list(places(tree))))
                tree = changed(tree, place, data.draw(st.one_of(st.sampled_from(NASTY), json_values)))
            payload[path] = (status, json.dumps(tree).encode(), kind)
    sane(get(name), answers(payload))


@pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: engine.id)
@pytest.mark.parametrize(
    "body",
    [
        DEEP_LIST,
        DEEP_OBJECT,
        b'{"startup_time":' + b"[" * 900 + b"]" * 900 + b',"version":"1","internal_states":[]}',
        b"[" + b"{}," * 100_000 + b"{}]",
        b'{"loads":[' + b'{"dp_rank":0},' * 100_000 + b"{}]}",
        b'{"version":NaN,"max_total_num_tokens":Infinity}',
        b'{"max_total_num_tokens":' + b"9" * 5000 + b"}",
        b'{"version":"\xff\xfe"}',
        b"\x00" * 1000,
        b"a 1\n" * 50_000,
        b"",
    ],
    ids=range(11),
)
def test_hostile_bodies_on_every_path(engine: Adapter, body: bytes) -> None:
    facts = sane(engine, {step.path: Answer(step.path, 200, body) for step in engine.plan})
    assert not facts.pool.known


@FEW
@given(
    document=json_values,
    pointer=st.one_of(st.text(max_size=20), st.lists(st.text(max_size=6), max_size=4).map("/".join)),
)
@example(document={"a": 10**30}, pointer="a")
@example(document=[5], pointer="0")
def test_generic_pools(document: Any, pointer: str) -> None:
    try:
        engine = with_pointers(dict.fromkeys(("capacity", "max_request", "in_use", "version"), "/" + pointer))
    except ValueError:
        assume(False)
    sane(engine, {"": Answer("", 200, json.dumps(document).encode())})
    sharded = with_pointers({"shards": "", "capacity": "/" + pointer, "in_use": ""})
    sane(sharded, {"": Answer("", 200, json.dumps(document).encode())})


@FEW
@given(body=st.one_of(st.binary(max_size=100), st.sampled_from([DEEP_LIST, DEEP_OBJECT])))
def test_generic_pools_of_arbitrary_bytes(body: bytes) -> None:
    sane(with_pointers({"capacity": "/0"}), {"": Answer("", 200, body)})
