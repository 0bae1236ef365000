"""What a server says about itself and to whom, and servers that fail, drip, flood or point elsewhere."""

from __future__ import annotations

import asyncio

import orjson
import pytest

from kvaudit.auditor.transport import BodyTooLarge, Redirected, TransportError
from kvaudit.auditor.transport.errors import DeadlineExceeded
from kvaudit.lab.config import LabConfig
from tests.lab.asking import A, with_lab

POOL_FIELDS = ("max_total_num_tokens", "token_capacity", "max_req_input_len")


def _read(path, faults, config=None, node=0):
    async def use(lab):
        return await lab.get(lab.inside.node_urls[node], path)

    return with_lab(use, faults, config)


@pytest.mark.parametrize("path", ["/server_info", "/get_server_info", "/v1/loads", "/metrics"])
def test_hidden_pool_shows_the_number_nowhere(path):
    status, body, _ = _read(path, ["hidden_pool"])
    assert status == 200
    assert b"5328" not in body
    assert b"5322" not in body
    assert b"5328" in _read(path, ["none"])[1]


@pytest.mark.parametrize("flavour", ["sglang", "vllm"])
def test_zero_gauges_export_zero_and_keep_the_names(flavour):
    config = LabConfig(flavour=flavour)
    body = _read("/metrics", ["zero_gauges"], config)[1].decode()
    name = "sglang:max_total_num_tokens" if flavour == "sglang" else "vllm:cache_config_info"
    line = next(splitline for splitline in body.splitlines() if splitline.startswith(name))
    assert line.endswith(" 0.0")
    assert "16384" not in body
    if flavour == "sglang":
        document = orjson.loads(_read("/server_info", ["zero_gauges"])[1])
        assert document["max_total_num_tokens"] == 0
        assert document["internal_states"][0]["memory_usage"]["token_capacity"] == 0


@pytest.mark.parametrize(
    ("flavour", "path", "version"),
    [
        ("sglang", "/server_info", "0.0.0.dev1+gdce8b0606"),
        ("vllm", "/version", "0.1.dev1+g2c27c294c.d20260608"),
    ],
)
def test_nightly_version(flavour, path, version):
    found = orjson.loads(_read(path, ["nightly_version"], LabConfig(flavour=flavour))[1])
    assert found["version"] == version


def test_keys_in_server_info_are_read_without_a_key():
    async def use(lab):
        api = lab.inside.deployment.apis[0]
        status, _, _ = await lab.get(lab.inside.node_urls[0], "/server_info")
        return status, api.document("/server_info")

    status, document = with_lab(use, ["keys_in_server_info"])
    assert status == 200
    assert document["admin_api_key"] == "sk-lab-admin-not-secret"
    assert "--admin-api-key sk-lab-admin-not-secret" in document["launch_command"]
    assert document["internal_states"][0]["ssl_keyfile_password"] == "lab-not-secret"


@pytest.mark.parametrize(("faults", "status"), [(["none"], 401), (["unauthenticated"], 200)])
def test_unauthenticated_completes_for_strangers(faults, status):
    async def use(lab):
        return await lab.post(lab.inside.entry, "/v1/completions", {"prompt": "hello", "max_tokens": 1})

    assert with_lab(use, faults)[0] == status


def test_a_node_with_a_key_asks_for_it_except_where_the_real_one_does_not():
    async def use(lab):
        url = lab.inside.node_urls[0]
        open_paths = [(await lab.get(url, path))[0] for path in ("/health", "/metrics", "/ready")]
        closed = [(await lab.get(url, path))[:2] for path in ("/server_info", "/v1/models", "/v1/loads")]
        right = (await lab.get(url, "/server_info", key="sk-node"))[0]
        return open_paths, closed, right

    open_paths, closed, right = with_lab(use, [], LabConfig(node_key="sk-node"))
    assert open_paths == [200] * 3
    assert closed == [(401, b'{"error":"Unauthorized"}')] * 3
    assert right == 200


def test_capacity_change_restarts_with_another_pool_and_another_identity():
    async def use(lab):
        node = lab.inside.deployment.nodes[0]
        pools, starts = [], []
        for _ in range(105):
            await lab.ask(A, "hello", 1)
            pools.append(node.pool.capacity)
            starts.append(node.started)
        return pools, starts

    pools, starts = with_lab(use, ["capacity_change"])
    assert (pools[0], pools[60], pools[104]) == (16_384, 12_288, 16_384)
    assert len(set(starts)) == 3


def test_flaky_fails_or_is_silent_four_times_in_ten():
    async def use(lab):
        ends = []
        for _ in range(200):
            try:
                ends.append((await lab.get(lab.inside.node_urls[0], "/v1/models"))[0])
            except TransportError:
                ends.append(0)
        return ends

    ends = with_lab(use, ["flaky"])
    assert set(ends) == {200, 503, 0}
    assert 50 < len(ends) - ends.count(200) < 110


def test_dripping_sends_a_byte_a_second():
    async def use(lab):
        start = asyncio.get_running_loop().time()
        with pytest.raises(DeadlineExceeded):
            await lab.get(lab.inside.node_urls[0], "/server_info")
        return asyncio.get_running_loop().time() - start

    assert 5.5 < with_lab(use, ["dripping"]) < 7


@pytest.mark.parametrize("path", ["/v1/loads", "/server_info"])  # plain, and packed
def test_bomb_never_ends(path):
    async def use(lab):
        with pytest.raises(BodyTooLarge):
            await lab.get(lab.inside.node_urls[0], path)

    with_lab(use, ["bomb"])


def test_redirect_points_at_the_metadata_address():
    async def use(lab):
        with pytest.raises(Redirected, match=r"169\.254\.169\.254"):
            await lab.get(lab.inside.node_urls[0], "/server_info")

    with_lab(use, ["redirect"])
