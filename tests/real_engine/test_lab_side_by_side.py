"""The lab's vLLM face beside a real vLLM: the same requests, the same statuses, keys and types.

Opt in: start the server (context 2048, keys sk-tenant-a and sk-tenant-b, model parrot) and set
KVAUDIT_REAL_URL to its address, http://127.0.0.1:18000.
"""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace

import orjson
import pytest

from kvaudit.auditor.transport import Client, Limits, TransportError
from tests.lab.asking import with_lab
from tests.lab.test_http_vllm import CONFIG, POSTS, shape

URL = os.environ.get("KVAUDIT_REAL_URL", "")
KEY = "sk-tenant-a"
MODEL = "parrot"

pytestmark = [
    pytest.mark.real_engine,
    pytest.mark.skipif(not URL, reason="no real engine: KVAUDIT_REAL_URL is not set"),
]

GETS = ["/version", "/v1/models", "/health", "/load", "/server_info"]


async def _ask(client: Client, method: str, path: str, body: object) -> tuple[int, str, bytes]:
    content = None if body is None else orjson.dumps(body)
    async with client:
        answer = await client.request(method, path, content=content, limits=Limits(60, 5, 60))
        return answer.status, answer.content_type, answer.body


def _real(method: str, path: str, body: object, key: str) -> tuple[int, str, bytes]:
    headers = [("Authorization", f"Bearer {key}")]
    try:
        return asyncio.run(_ask(Client(URL, allow=[(method, path)], headers=headers), method, path, body))
    except TransportError as error:
        pytest.skip(f"no real engine answers at {URL}: {error}")


def _lab(method: str, path: str, body: object, key: str) -> tuple[int, str, bytes]:
    config = replace(CONFIG, model=MODEL, node_key=KEY)

    async def use(lab):
        client = lab.inside.client(lab.inside.node_urls[0], allow=[(method, path)], key=key)
        return await _ask(client, method, path, body)

    return with_lab(use, [], config)


def _compare(method: str, path: str, body: object, key: str = KEY) -> None:
    real, ours = _real(method, path, body, key), _lab(method, path, body, key)
    assert ours[:2] == real[:2]
    if real[2].startswith(b"{"):
        assert shape(orjson.loads(ours[2])) == shape(orjson.loads(real[2]))


@pytest.mark.parametrize(("name", "body"), POSTS, ids=[name for name, _ in POSTS])
def test_completions(name, body):
    _compare("POST", "/v1/completions", {"model": MODEL, **body})


@pytest.mark.parametrize("path", GETS)
def test_discovery(path):
    _compare("GET", path, None)


def test_a_wrong_key():
    _compare("GET", "/v1/models", None, key="sk-wrong")
