"""The OpenAI shapes, read from answers of a real server and from the references' wordings."""

from pathlib import Path

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvaudit.auditor.engines.completion import Call, CompletionOptions, Dialect, Mode, ParsedPayload
from kvaudit.auditor.engines.payload_text import error_in
from kvaudit.auditor.engines.sglang.dialect import SGLangDialect
from kvaudit.auditor.text.spelling import Prompt

PAYLOADS = Path(__file__).parent.parent.parent / "payloads" / "vllm-0.32.0"
VLLM = Dialect()
WISH = CompletionOptions("m", 5)


def recorded(name):
    """The JSON payloads of a recorded answer: the body, or the data of each stream frame."""
    body = (
        (PAYLOADS / f"{name}.http").read_text(errors="replace").partition("body byte")[2].partition("\n")[2]
    )
    frames = [line[6:] for line in body.splitlines() if line.startswith("data: {")]
    return [orjson.loads(frame) for frame in frames or [body.strip()]]


def test_token_ids_are_joined_into_the_body_without_being_parsed():
    call = VLLM.call(Mode.COMPLETION_IDS, Prompt(3, b"12,7,3"), CompletionOptions("m", 5, salt="s"))
    assert call.path == "/v1/completions"
    assert orjson.loads(call.body) == {
        "prompt": [12, 7, 3],
        "model": "m",
        "max_tokens": 5,
        "temperature": 0.0,
        "stream": True,
        "stream_options": {"include_usage": True},
        "cache_salt": "s",
    }


def test_text_and_chat():
    assert orjson.loads(VLLM.call(Mode.COMPLETION_TEXT, Prompt(1, text="hi"), WISH).body)["prompt"] == "hi"
    chat = VLLM.call(Mode.CHAT_TEXT, Prompt(1, text="hi"), WISH)
    assert chat == Call("/v1/chat/completions", chat.body)
    assert orjson.loads(chat.body)["messages"] == [{"role": "user", "content": "hi"}]


@pytest.mark.parametrize(
    ("mode", "prompt"), [(Mode.COMPLETION_IDS, Prompt(1, text="a")), (Mode.CHAT_TEXT, Prompt(1, b"1"))]
)
def test_a_prompt_of_the_wrong_kind_is_refused(mode, prompt):
    with pytest.raises(ValueError):
        VLLM.call(mode, prompt, WISH)


def test_a_whole_answer():
    (payload,) = recorded("salt_A2")
    said = VLLM.parse(payload)
    assert (said.prompt_tokens, said.completion_tokens, said.cached_tokens) == (1500, 1, 1408)
    assert (said.finish, said.error, said.build) == ("length", "", "vllm-0.32.0-40c17391")


def test_cached_tokens_that_are_not_reported_are_unknown():
    (payload,) = recorded("plain_comp1")
    assert VLLM.parse(payload).cached_tokens is None


def test_a_stream_says_text_then_usage():
    said = [VLLM.parse(frame) for frame in recorded("h_stream")]
    assert "".join(one.text for one in said) == "OOO"
    assert said[-1].prompt_tokens == 61


@pytest.mark.parametrize(
    ("name", "sent", "about_length", "limit"),
    [
        ("c_ids_2048_mt1", 2048, True, None),
        ("c_ids_2049_mt1", 2049, True, 2048),
        ("c_ids_N1_stream", 2049, True, 2048),
        ("h_over_stream", 2060, True, 2048),
        ("c_text_way_over", 5_000_000, True, 2048),
        ("c_badmodel", 10, False, None),
        ("salt_bad_long", 10, False, None),
        ("post_v1_completions_nokey", 10, False, None),
    ],
)
def test_recorded_errors(name, sent, about_length, limit):
    error = VLLM.parse(recorded(name)[0]).error
    assert error
    assert VLLM.names_length(error, sent) is about_length
    assert VLLM.limit_named(error) == limit


@pytest.mark.parametrize(
    ("message", "sent", "about_length", "limit"),
    [
        (
            "Input length (700000 tokens) exceeds the maximum allowed length (681274 tokens). Use a shorter input or enable --allow-auto-truncate.",
            700_000,
            True,
            681_274,
        ),
        (
            "The input (2000000 tokens) is longer than the model's context length (1048576 tokens).",
            2_000_000,
            True,
            1_048_576,
        ),
        (
            "Requested token count exceeds the model's maximum context length of 8192 tokens. You requested a total of 8300 tokens",
            8_100,
            False,
            8_192,
        ),
        (
            "Requested token count exceeds the model's maximum context length of 8192 tokens. You requested a total of 8300 tokens",
            8_192,
            True,
            8_192,
        ),
        (
            "This model's maximum context length is 2048 tokens. However, you requested 100 output tokens and your prompt contains 2000 input tokens, for a total of 2100 tokens.",
            2_000,
            False,
            2_048,
        ),
        (
            "This model's maximum context length is 2048 tokens. However, you requested 1 output tokens and your prompt contains 2048 input tokens, for a total of 2049 tokens.",
            2_048,
            True,
            2_048,
        ),
        (
            "'max_tokens' or 'max_completion_tokens' is too large: 100. This model's maximum context length is 2048 tokens (100 > 2048 - 2000).",
            2_000,
            False,
            2_048,
        ),
        (
            "`default_max_tokens` (-152) must be greater than 0, `default_max_tokens` (-152) = max_seq_len (8192) - `splited_prompt_len` (8344)",
            8_344,
            True,
            8_192,
        ),
        (
            "The sum of prompt length (72417.0), query length (0) should not exceed max_num_tokens (69632)",
            72_417,
            True,
            69_632,
        ),
        (
            "request (13392 tokens) exceeds the available context size (8192 tokens), try increasing it",
            13_392,
            True,
            8_192,
        ),
        ("Input validation error: `inputs` must have less than 4096 tokens. Given: 4500", 4_500, True, 4_096),
        ("max_tokens must be at least 1, got 5", 5, False, None),
        ("Internal server error", 5, False, None),
        ("", 5, False, None),
    ],
)
def test_wordings_of_the_references(message, sent, about_length, limit):
    assert VLLM.names_length(message, sent) is about_length
    assert VLLM.limit_named(message) == limit


@pytest.mark.parametrize(
    ("payload", "expected"),
    [
        ({"error": {"message": "m", "code": 400}}, ("m", 400)),
        ({"error": "text"}, ("text", None)),
        ({"object": "error", "message": "m", "code": 400}, ("m", 400)),
        ({"type": "error", "message": "m"}, ("m", None)),
        ({"detail": "Not Found"}, ("Not Found", None)),
        ({"error": {}}, ("an error without a message", None)),
        ({"error": None, "choices": []}, ("", None)),
        ({"choices": [{"text": "x"}], "detail": "y"}, ("", None)),
        (
            {"error": {"message": "No.", "code": "context_length_exceeded"}},
            ("No. (context_length_exceeded)", None),
        ),
        (
            {"error": {"type": "exceed_context_size_error"}},
            ("an error without a message (exceed_context_size_error)", None),
        ),
        ({"error": {"message": "m", "code": "invalid_request"}}, ("m", None)),
    ],
)
def test_error_shapes(payload, expected):
    assert error_in(payload) == expected


def test_reasoning_and_tool_arguments_are_text_too():
    message = {"content": "a", "reasoning_content": "b", "tool_calls": [{"function": {"arguments": "c"}}]}
    assert sorted(VLLM.parse({"choices": [{"message": message}]}).text) == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("message", "text", "finish"),
    [
        ({"content": [{"type": "text", "text": "wal"}, {"type": "text", "text": "nut"}]}, "walnut", "stop"),
        ({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "a"}]}, "b"]}, "ab", "stop"),
        ({"content": {"type": "text", "text": {"value": "walnut"}}}, "walnut", "stop"),
        ({"content": None, "refusal": "I can't assist with that."}, "I can't assist with that.", "refusal"),
        ({"content": None, "function_call": {"name": "f", "arguments": "{}"}}, "{}", "stop"),
        ({"content": [1, None, [], {"type": "image_url"}]}, "", "stop"),
    ],
)
def test_content_in_every_shape(message, text, finish):
    for name in ("message", "delta"):
        said = VLLM.parse({"choices": [{name: message, "finish_reason": "stop"}]})
        assert (said.text, said.finish) == (text, finish)
    assert (
        VLLM.next_text({"model": "m", "choices": [{"delta": {"content": [{"text": "a"}]}}]}, "m", "") == "a"
    )


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner)
        | st.dictionaries(
            st.sampled_from(
                [
                    "choices",
                    "usage",
                    "error",
                    "text",
                    "delta",
                    "tokens",
                    "prompt_tokens_details",
                    "object",
                    "message",
                    "tool_calls",
                    "function",
                ]
            ),
            inner,
        )
    ),
)


@settings(deadline=None)
@given(JSON)
def test_arbitrary_json_never_raises(payload):
    VLLM.parse(payload)
    ids = VLLM.token_ids(payload)
    assert ids is None or all(token >= 0 for token in ids)


PARTS = st.sampled_from(["", "a", None, 0, [], {}, {"content": "b"}, {"error": "c"}, {"tool_calls": [{}]}])
CHOICES = st.dictionaries(st.sampled_from(["text", "delta", "message", "reasoning", "finish_reason"]), PARTS)
FRAMES = st.dictionaries(
    st.sampled_from(
        ["model", "system_fingerprint", "usage", "error", "object", "type", "meta_info", "detail"]
    ),
    st.sampled_from(["", "m", "error", None, {}, {"prompt_tokens": 3}, {"message": "x"}, 7]),
) | st.builds(
    lambda frame, choices: {**frame, "choices": choices},
    st.dictionaries(st.sampled_from(["model", "usage", "error", "meta_info"]), PARTS),
    st.lists(CHOICES | PARTS, max_size=2) | PARTS,
)


@given(FRAMES | PARTS, st.sampled_from(["", "m"]))
def test_a_word_is_what_a_frame_says_whole_or_left_to_said(payload, model):
    for dialect in (VLLM, SGLangDialect()):
        word = dialect.next_text(payload, model, "")
        said = dialect.parse(payload)
        if word is not None:
            assert said == ParsedPayload(word, model=said.model)
            assert said.model in ("", model)


def test_the_frames_of_a_real_stream_are_words_except_what_says_more():
    frames = recorded("h_stream")
    model, build = frames[0]["model"], frames[0].get("system_fingerprint") or ""
    words = [VLLM.next_text(frame, model, build) for frame in frames]
    for frame, word in zip(frames, words, strict=True):
        assert word is None or word == VLLM.parse(frame).text
        assert VLLM.next_text(frame, "another model", build) is None
    assert any(word for word in words)
