from __future__ import annotations

import hashlib
import hmac
import time
from pathlib import Path
from typing import Any

import pytest

from kvaudit.server.notify.signing import holds, sign


def test_a_receiver_can_compute_it_from_the_description() -> None:
    body, secret, at = b'{"event":"fail"}', "s3cret", 1_795_000_000
    expected = hmac.new(b"s3cret", b'1795000000.{"event":"fail"}', hashlib.sha256).hexdigest()
    assert sign(body, secret, at) == f"t=1795000000,v1={expected}"


@pytest.mark.parametrize(
    ("header", "body", "secret", "now", "right"),
    [
        (sign(b"x", "s", 1000), b"x", "s", 1000, True),
        (sign(b"x", "s", 1000), b"x", "s", 1300, True),
        (sign(b"x", "s", 1000), b"x", "s", 1301, False),  # replayed later
        (sign(b"x", "s", 1000), b"x", "s", 699, False),
        (sign(b"x", "s", 1000), b"y", "s", 1000, False),
        (sign(b"x", "s", 1000), b"x", "t", 1000, False),
        (sign(b"x", "s", 1000).replace("t=1000", "t=1001"), b"x", "s", 1000, False),
        ("", b"x", "s", 1000, False),
        ("t=abc,v1=00", b"x", "s", 1000, False),
        ("t=²,v1=00", b"x", "s", 1000, False),
        ("nonsense", b"x", "s", 1000, False),
    ],
)
def test_what_a_receiver_accepts(header: str, body: bytes, secret: str, now: int, right: bool) -> None:
    assert holds(header, body, secret, now) is right


def test_the_receiver_in_the_manual_agrees() -> None:
    manual = (Path(__file__).parents[3] / "docs" / "channels.md").read_text()
    code = manual.split("```python")[1].split("```")[0]
    names: dict[str, Any] = {}
    exec(code, names)
    now = int(time.time())
    assert names["holds"](sign(b"x", "s", now), b"x", "s")
    assert not names["holds"](sign(b"x", "s", now), b"y", "s")
    assert not names["holds"](sign(b"x", "s", now - 301), b"x", "s")
