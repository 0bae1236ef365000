"""The answers of SGLang, parsed once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kvaudit.auditor.engines import _json, _prometheus
from kvaudit.auditor.engines.answers import Answers

NEW_INFO, OLD_INFO = "/server_info", "/get_server_info"
"""The old name alone up to about 0.5.5; from 0.5.6 on it is an alias."""

_ARGUMENTS = ("tp_size", "disaggregation_mode", "max_req_input_len", "status")


@dataclass(frozen=True, slots=True)
class ParsedAnswers:
    """The answers, parsed once."""

    answers: Answers
    where: str  # "GET /server_info"
    info: Mapping[str, Any]
    states: Sequence[Mapping[str, Any]]
    loads: Mapping[str, Any]
    models: Mapping[str, Any]
    model: Mapping[str, Any]  # GET /model_info
    metrics: _prometheus.Metrics

    @property
    def short(self) -> bool:
        """The Rust front end: an allow-list without the server's arguments."""
        return not any(name in self.info for name in _ARGUMENTS)


def parse_answers(answers: Answers) -> ParsedAnswers:
    path = NEW_INFO if _json.mapping(_json.parsed(answers.get(NEW_INFO))) else OLD_INFO
    info = _json.mapping(_json.parsed(answers.get(path)))
    return ParsedAnswers(
        answers,
        f"GET {path}",
        info,
        [_json.mapping(state) for state in _json.sequence(info.get("internal_states"))],
        _json.mapping(_json.parsed(answers.get("/v1/loads"))),
        _json.mapping(_json.parsed(answers.get("/v1/models"))),
        _json.mapping(_json.parsed(answers.get("/model_info"))),
        _prometheus.parse(answers.get("/metrics")),
    )


def base_cards(seen: ParsedAnswers) -> list[Mapping[str, Any]]:
    """Cards of the model itself; a LoRA adapter's card has a parent and no length."""
    cards = (_json.mapping(card) for card in _json.sequence(seen.models.get("data")))
    return [card for card in cards if card and card.get("parent") is None]
