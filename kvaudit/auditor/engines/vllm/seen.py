"""The answers of vLLM, parsed once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kvaudit.auditor.engines import _json, _prometheus
from kvaudit.auditor.engines.answers import Answers
from kvaudit.auditor.engines.vllm.pools import cache_lines


@dataclass(frozen=True, slots=True)
class ParsedAnswers:
    """The answers, parsed once."""

    answers: Answers
    models: Mapping[str, Any]
    metrics: _prometheus.Metrics
    lines: Sequence[Mapping[str, str]]  # labels of each cache_config_info line


def parse_answers(answers: Answers) -> ParsedAnswers:
    metrics = _prometheus.parse(answers.get("/metrics"))
    return ParsedAnswers(
        answers, _json.mapping(_json.parsed(answers.get("/v1/models"))), metrics, cache_lines(metrics)
    )


def cards(seen: ParsedAnswers) -> list[Mapping[str, Any]]:
    return [_json.mapping(card) for card in _json.sequence(seen.models.get("data"))]


def base_cards(seen: ParsedAnswers) -> list[Mapping[str, Any]]:
    """Cards of the model itself: an adapter's card names its parent."""
    return [card for card in cards(seen) if card and card.get("parent") is None]
