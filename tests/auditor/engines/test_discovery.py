"""Engines are found in their folder, and what each says of itself holds together."""

from __future__ import annotations

from pathlib import Path

import pytest

from kvaudit.auditor import engines
from kvaudit.auditor.fleetfile import values

ROOT = Path(__file__).parents[3]


def test_an_unknown_engine_is_named_with_those_there_are() -> None:
    with pytest.raises(ValueError, match="no engine called 'llamacpp'; known engines are sglang, vllm"):
        engines.get("llamacpp")


@pytest.mark.parametrize("engine", engines.ENGINES.values(), ids=lambda engine: engine.id)
class TestEach:
    def test_adapter_and_descriptor_are_of_one_engine(self, engine: engines.Engine) -> None:
        adapter = engines.get(engine.id)
        assert (adapter.id, adapter.title) == (engine.id, engine.title)

    def test_every_spelling_leads_to_it(self, engine: engines.Engine) -> None:
        for spelling in (engine.id, engine.id.upper(), *engine.aliases):
            assert values.engine(spelling) == engine.id

    def test_what_it_may_leave_open_is_never_asked(self, engine: engines.Engine) -> None:
        surface = engine.surface
        assert not set(surface.reads) & {*surface.acting, *surface.completions, *surface.scaling}
        assert bool(surface.keys) == bool(surface.unlocked)

    def test_it_has_a_test_and_a_column(self, engine: engines.Engine) -> None:
        assert (ROOT / f"tests/auditor/engines/test_{engine.id}.py").is_file()
        head = next(
            line for line in (ROOT / "docs/engines.md").read_text().splitlines() if line.startswith("| |")
        )
        assert engine.title.partition(" pool")[0] in head
