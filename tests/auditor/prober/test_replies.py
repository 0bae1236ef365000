"""How an answer is to be taken: the status proves transport, the body decides."""

from __future__ import annotations

import hashlib
from typing import Any

import orjson
import pytest

from kvaudit.auditor.checks.prober_protocol import Outcome
from kvaudit.auditor.engines.completion import Call, CompletionOptions, Dialect, ParsedPayload
from kvaudit.auditor.engines.sglang.dialect import SGLangDialect
from kvaudit.auditor.prober.replies import ReplyRecorder, ReplyText, clear_error, outcome_of
from kvaudit.auditor.text.markers import draw_marker, seeded
from kvaudit.auditor.text.prompts import Contents, Nonce
from kvaudit.auditor.text.spelling import Prompt
from tests import servers

VLLM, SGLANG = Dialect(), SGLangDialect()
LIMIT = "Input length (5322 tokens) exceeds the maximum allowed length (5321 tokens)."
USAGE = {"prompt_tokens": 5_322, "completion_tokens": 8, "prompt_tokens_details": {"cached_tokens": 0}}


def choice(text: str = "walnut", finish: str = "stop", **usage: Any) -> dict[str, Any]:
    return {"model": "m", "choices": [{"text": text, "finish_reason": finish}], "usage": {**USAGE, **usage}}


def generated(reason: Any, text: str = "", **meta: Any) -> dict[str, Any]:
    return {"text": text, "meta_info": {"finish_reason": reason, "prompt_tokens": 5_322, **meta}}


def taken(
    status: int,
    *payloads: Any,
    complete: bool = True,
    dialect: Dialect = VLLM,
    tokens: int = 5_322,
    wanted: int = 24,
) -> Outcome:
    said = ReplyText()
    for payload in payloads:
        said.add(dialect.parse(payload))
    return outcome_of(status, said, complete, dialect, Prompt(tokens, b"1"), CompletionOptions("m", wanted))


@pytest.mark.parametrize(
    ("status", "payload", "outcome"),
    [
        (200, choice(), Outcome.ANSWERED),
        (200, choice("", completion_tokens=0), Outcome.EMPTY),
        (200, choice("", completion_tokens=3), Outcome.ANSWERED),  # tokens that are no text
        (200, choice("a", "length", completion_tokens=1), Outcome.CUT),
        (200, choice("", "abort", completion_tokens=0), Outcome.CUT),
        (200, choice("abc", "length", completion_tokens=24), Outcome.ANSWERED),
        (200, {"error": {"message": LIMIT, "code": 400}}, Outcome.REFUSED),
        (200, {"error": LIMIT}, Outcome.REFUSED),
        (200, {"object": "error", "message": LIMIT, "code": 400}, Outcome.REFUSED),
        (200, {"error": {"message": "worker died", "code": 500}}, Outcome.FAILED),
        (200, {"error": {"message": "unknown parameter", "code": 400}}, Outcome.UNANSWERED),
        (400, {"object": "error", "message": LIMIT}, Outcome.REFUSED),
        (422, {"detail": "The prompt is too long"}, Outcome.REFUSED),
        (400, {"error": {"message": "temperature must be non-negative"}}, Outcome.UNANSWERED),
        (400, {"error": {"message": "max_tokens must be at least 1, got -3"}}, Outcome.REFUSED),
        (404, {"detail": "Not Found"}, Outcome.UNANSWERED),
        (401, {"error": "Unauthorized"}, Outcome.DENIED),
        (403, {}, Outcome.DENIED),
        (413, {"message": "request entity too large"}, Outcome.TOO_LARGE),
        (429, {"error": LIMIT}, Outcome.BUSY),
        (503, {"error": LIMIT}, Outcome.BUSY),
        (529, {}, Outcome.BUSY),
        (500, {"error": {"message": LIMIT}}, Outcome.FAILED),
        (504, {}, Outcome.FAILED),
    ],
)
def test_whole_answers(status: int, payload: Any, outcome: Outcome) -> None:
    assert taken(status, payload) is outcome


@pytest.mark.parametrize(
    ("reason", "text", "outcome"),
    [
        ({"type": "abort", "message": LIMIT, "status_code": 400}, "", Outcome.REFUSED),
        ({"type": "abort", "message": "out of memory", "status_code": 500}, "", Outcome.CUT),
        ({"type": "abort"}, "", Outcome.CUT),
        ({"type": "stop", "matched": 2}, "walnut", Outcome.ANSWERED),
        (None, "walnut", Outcome.ANSWERED),
    ],
)
def test_aborts_of_generate(reason: Any, text: str, outcome: Outcome) -> None:
    assert taken(200, generated(reason, text), dialect=SGLANG) is outcome


def test_an_error_frame_after_text_is_what_counts() -> None:
    assert taken(200, choice("half of"), {"error": {"message": LIMIT}}, complete=False) is Outcome.REFUSED


def test_a_stream_without_its_end_is_broken_and_not_answered() -> None:
    assert taken(200, choice("walnut"), complete=False) is Outcome.BROKEN


def test_one_token_where_one_was_wanted_is_an_answer() -> None:
    assert taken(200, choice(" ", "length", completion_tokens=1), wanted=1) is Outcome.ANSWERED


def test_garbage_is_broken_whatever_it_says() -> None:
    said = ReplyText(garbled=True, error="x")
    assert outcome_of(200, said, False, VLLM, Prompt(9, b"1"), CompletionOptions("m", 1)) is Outcome.BROKEN
    assert outcome_of(502, said, False, VLLM, Prompt(9, b"1"), CompletionOptions("m", 1)) is Outcome.FAILED


@pytest.mark.parametrize(
    ("name", "tokens", "wanted", "outcome"),
    [
        ("c_ids_2047_mt1", 2_047, 1, Outcome.ANSWERED),
        ("c_ids_2048_mt1", 2_048, 1, Outcome.REFUSED),
        ("c_ids_2049_mt1", 2_049, 1, Outcome.REFUSED),
        ("c_ids_2047_mt2", 2_047, 2, Outcome.CUT),  # clamped: so no more is wished than there is room
        ("c_badmodel", 9, 1, Outcome.UNANSWERED),
        ("post_v1_completions_nokey", 9, 1, Outcome.DENIED),
    ],
)
def test_recorded_answers_of_a_real_server(name: str, tokens: int, wanted: int, outcome: Outcome) -> None:
    """vLLM 0.32.0 with a context of 2,048: N - 1 has one token of room."""
    reply = servers.recorded(f"vllm-0.32.0/{name}.http")
    assert taken(reply.status, orjson.loads(reply.body), tokens=tokens, wanted=wanted) is outcome


def test_cumulative_text_replaces_and_increments_add() -> None:
    said = ReplyText()
    for piece in (
        ParsedPayload("wal"),
        ParsedPayload("nut", prompt_tokens=9),
        ParsedPayload("", finish="stop"),
    ):
        said.add(piece)
    assert (said.text, said.finish, said.prompt_tokens) == ("walnut", "stop", 9)
    said.add(ParsedPayload("walnut!", cumulative=True))
    assert said.text == "walnut!"


SECRET = "account 4711081599221177 of Mrs Example"


def written(seal: Any = None, key: bytes = b"k") -> Any:
    said = ReplyText([SECRET], finish="stop", prompt_tokens=9)
    return ReplyRecorder(VLLM, "m", key, seal).reply(
        Outcome.ANSWERED,
        tenant="A",
        call=Call("/v1/completions", b'{"prompt":[1]}'),
        prompt=Prompt(9, b"1"),
        wish=CompletionOptions("m", 8, salt="pepper-77"),
        status=200,
        said=said,
        first=0.1,
        seconds=0.2,
    )


def test_generated_text_and_salt_stay_out_of_evidence() -> None:
    reply = written()
    assert [item.kind for item in reply.evidence] == ["request", "response"]
    for item in reply.evidence:
        assert b"4711081599221177" not in item.body
        assert b"pepper" not in item.body
        assert hashlib.sha256(item.body).hexdigest() == item.sha256
    assert SECRET not in repr(reply)
    response = orjson.loads(reply.evidence[1].body)
    assert response["text_length"] == len(SECRET)


def test_the_hash_is_keyed_so_that_a_guess_cannot_be_tried() -> None:
    hashes = [
        orjson.loads(written(key=key).evidence[1].body)["text_hmac_sha256"] for key in (b"a", b"a", b"b")
    ]
    assert hashes[0] == hashes[1] != hashes[2]
    assert hashlib.sha256(SECRET.encode()).hexdigest() not in hashes


def test_text_is_handed_to_the_seal_and_kept_only_as_it_comes_back() -> None:
    handed: list[bytes] = []
    reply = written(lambda text: handed.append(text) or b"\x01sealed")
    assert handed == [SECRET.encode()]
    sealed = reply.evidence[-1]
    assert (sealed.kind, sealed.body) == ("sealed", b"\x01sealed")


@pytest.mark.parametrize(
    ("said", "clear"),
    [
        (LIMIT, LIMIT),
        (f"{LIMIT} Prompt: zebedee's account", LIMIT),
        ("CUDA error: out of memory\nzebedee", "CUDA error: out of memory"),
        ("sglang 0.5.21 timed out", "sglang 0.5.21 timed out"),
        ("x" * 900 + " zebedee", "x" * 200),
        ("", ""),
    ],
)
def test_of_an_error_the_first_sentence_is_kept_in_clear(said: str, clear: str) -> None:
    assert clear_error(said) == clear


def test_what_an_error_says_beyond_is_sealed() -> None:
    sealed: list[bytes] = []

    def seal(text: bytes) -> bytes:
        sealed.append(text)
        return b"\x00"

    said = ReplyText(error=f"{LIMIT} Prompt: zebedee's account")
    reply = ReplyRecorder(VLLM, "mode", b"k", seal).reply(
        Outcome.REFUSED,
        tenant="A",
        call=Call("/v1/completions", b"{}"),
        prompt=Prompt(9_000, b"1"),
        wish=CompletionOptions("m", 8),
        status=400,
        said=said,
        first=None,
        seconds=0.1,
    )
    assert (reply.error, reply.limit_named) == (LIMIT, 5_321)
    assert sealed == [said.error.encode()]
    assert not any(b"zebedee" in (item.body or b"") for item in reply.evidence)
    assert reply.aside["error"] == said.error


SORRY = "I'm sorry, but I can't assist with that request."
TOO_LONG = "Sorry, your message is too long: the maximum context length is 8192 tokens."


@pytest.mark.parametrize(
    ("status", "payload", "outcome"),
    [
        (200, choice(SORRY, "content_filter"), Outcome.GUARDED),
        (200, choice("", "content_filter", completion_tokens=0), Outcome.GUARDED),
        (200, choice(SORRY), Outcome.GUARDED),
        (200, {"choices": [{"message": {"content": None, "refusal": "No."}}]}, Outcome.GUARDED),
        (400, {"error": {"message": "Filtered.", "code": "content_filter"}}, Outcome.GUARDED),
        (200, {"error": {"message": "Your request was blocked."}}, Outcome.GUARDED),
        (200, choice(TOO_LONG), Outcome.HIDDEN),
        (200, choice(" walnut. " + SORRY), Outcome.ANSWERED),
        (200, choice(" walnut. It is too long."), Outcome.ANSWERED),
    ],
)
def test_what_answers_in_place_of_the_model(status: int, payload: Any, outcome: Outcome) -> None:
    """A guardrail, or an error as an answer (redteam guardrail, error_text_200); never where the nonce was given."""
    said = ReplyText()
    said.add(VLLM.parse(payload))
    contents = Contents(draw_marker(seeded(1)), Nonce("walnut").tail)
    prompt = Prompt(9_000, b"1", contents=contents)
    found = outcome_of(status, said, True, VLLM, prompt, CompletionOptions("m", 24))
    assert found is outcome
    assert found.valid is (outcome is not Outcome.GUARDED)
