"""Pins: an engine and the range that policy allows."""

import pytest

from kvaudit.auditor.advisories.pins import parse_pin, pins_for
from kvaudit.auditor.advisories.versions import parse_build


@pytest.mark.parametrize(
    ("text", "engine", "shown"),
    [
        ("sglang>=0.5.22", "sglang", "sglang >=0.5.22"),
        (" vLLM >= 0.29.0 , <0.40", "vllm", "vllm >= 0.29.0 , <0.40"),
        ("tensorrt-llm>=1.2.1", "trtllm", "trtllm >=1.2.1"),
        ("llama.cpp>=1", "llamacpp", "llamacpp >=1"),
    ],
)
def test_readable(text, engine, shown):
    pin = parse_pin(text)
    assert (pin.engine, str(pin)) == (engine, shown)


@pytest.mark.parametrize(
    "text", ["", "sglang", ">=0.5.22", "sglang 0.5.22", "sglang>=", "sglang>=abc", "sglang=0.5.22"]
)
def test_unreadable_is_a_sentence(text):
    with pytest.raises(ValueError, match="pin"):
        parse_pin(text)


@pytest.mark.parametrize(
    ("version", "allowed"),
    [
        ("0.5.22", True),
        ("0.5.22.post1", True),
        ("0.6.0rc1", True),
        ("0.5.22rc1", False),
        ("0.5.21", False),
        ("0.5.21.dev5", False),
        ("0.5.22.dev5", None),
        ("0.0.0.dev1", None),
        (None, None),
    ],
)
def test_shipped_pin(version, allowed):
    assert parse_pin("sglang>=0.5.22").allows(parse_build(version)) is allowed


def test_a_pin_speaks_of_its_engine_only():
    pins = ("sglang>=0.5.22", "vllm>=0.29.0")
    assert [str(pin) for pin in pins_for("vllm", pins)] == ["vllm >=0.29.0"]
    assert pins_for("trtllm", pins) == ()
