"""Inputs made to cost time, for every parser that reads what a stranger wrote: `tests.test_parsers_time` holds
their growth, `bench/parsers.py` their milliseconds."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import orjson

from kvaudit.auditor.advisories.versions import in_range, parse_build
from kvaudit.auditor.engines import _prometheus
from kvaudit.auditor.engines.answers import Answer
from kvaudit.auditor.engines.completion import Dialect
from kvaudit.auditor.engines.routers import gateway_workers
from kvaudit.auditor.engines.sglang.adapter import SGLang
from kvaudit.auditor.fleetfile import from_csv, from_yaml
from kvaudit.auditor.text.markers import draw_marker, seeded
from kvaudit.auditor.text.matcher import Matcher, frame_numbers
from kvaudit.auditor.text.prompts import draw_nonce
from kvaudit.auditor.transport import EventParser, Redactor, TransportError
from kvaudit.auditor.transport.body import Decoder
from kvaudit.server.inquiries.request_logs import reader

Parse = Callable[[bytes], object]

_DRAW = seeded(7)
_MARKERS = [draw_marker(_DRAW) for _ in range(2_000)]
_MATCHER = Matcher(_MARKERS)
_NONCE = draw_nonce(_DRAW)
_WORDS = _MARKERS[0].words


@dataclass(frozen=True, slots=True)
class Costly:
    """One parser and one shape of input: ``head`` + ``unit`` as often as it takes + ``tail``."""

    parser: str
    parse: Parse
    unit: str
    head: str = ""
    tail: str = ""
    distinct: bool = False  # a % of the unit becomes a running number

    def body(self, size: int) -> bytes:
        if self.distinct:
            times = size // (len(self.unit) + 6 * self.unit.count("%"))
            units = "".join(self.unit.replace("%", f"{number:07d}") for number in range(times))
        else:
            units = self.unit * (size // len(self.unit.encode()))
        return (self.head + units + self.tail).encode()

    @property
    def name(self) -> str:
        return f"{self.parser} {self.head[:14]}{self.unit[:24]}".replace("\n", "\\n")


def redact(body: bytes) -> object:
    return Redactor(["our-own-key"]).body(body)


def redact_text(body: bytes) -> object:
    return Redactor(["our-own-key"]).text(body.decode())


def events(body: bytes) -> object:
    parser, redactor = EventParser(), Redactor(["our-own-key"])
    for at in range(0, len(body), 65_536):
        for event in parser.feed(body[at : at + 65_536]):
            redactor.event(event.data)
            _ = (event.error, event.text, event.json(), event.done)
    return parser


def crumbs(body: bytes) -> object:
    decoder = Decoder("", 1 << 30, "GET http://a")
    for at in range(len(body)):
        decoder.count(body[at : at + 1])
    return decoder


def metrics(body: bytes) -> object:
    found = _prometheus.parse(Answer("/metrics", 200, body))
    return [found.total("a") for _ in range(5)]


def completion(body: bytes) -> object:
    return Dialect().parse(orjson.loads(body))


def router(body: bytes) -> object:
    return gateway_workers(orjson.loads(body))


def server_info(body: bytes) -> object:
    path = "/server_info"
    return SGLang().facts({path: Answer(path, 200, body), "/metrics": Answer("/metrics", 404, b"")})


def error_message(body: bytes) -> object:
    return Dialect().names_length(body.decode(), 5), Dialect().limit_named(body.decode())


def version(body: bytes) -> object:
    return in_range(parse_build(body.decode()), ">=0.5,<0.6")


def matched(body: bytes) -> object:
    return _MATCHER.find(body.decode())


def numbered(body: bytes) -> object:
    return frame_numbers(body.decode(), _MARKERS[0])


def answered(body: bytes) -> object:
    return _NONCE.answered(body.decode())


def log(body: bytes) -> object:
    return sum(1 for _ in reader.read(io.BytesIO(body)))


_KEY = '{"api_key":"abcdef123","x":['
_FLEET = "schema: kvaudit.fleet/1\ndeployments:\n - slug: a\n"
_LOG = "time,prompt_tokens,tenant\n"


def cases() -> Iterator[Costly]:
    for unit in (
        "eyJ-", "--a ", "key=", "key='", '"key":"', "Bearer ", "://a:", '\\"', "sk-", "-.", "key", "key ", "--key=$",
        "--key=+", "auth_key=*", "a_key: b\n", "api_key=x", "İkey=", 'password=\\"', 'key="A ', " ", "api_key = ",
    ):  # fmt: skip
        yield Costly("redaction", redact, unit)
        yield Costly("redaction of text", redact_text, unit)
    yield Costly("redaction", redact, "svc%_password='s%'\n", distinct=True)
    # Every string with names of its own: patterns made of them took half a minute.
    yield Costly("redaction", redact, '"a%_key=zz b%_token=yy c%_secret=x",', "[", "1]", distinct=True)
    yield Costly("redaction", redact, '"%_key":"a b",', "{", '"z":1}', distinct=True)
    yield Costly("redaction", redact, '"%":1,', '{"api_key":"abcdef123",', '"z":1}', distinct=True)
    for unit in ("1,", '"abcd",', '{"a":1},', '"--a",', '"--api-key","v",', "[],", '"key",'):
        yield Costly("redaction", redact, unit, _KEY, "1]}")
    yield Costly("redaction", redact, "[", '["api_key",')
    yield Costly("redaction", redact, 'x:prompt_tokens_total{model_name="m%"} %.0\n', distinct=True)
    for unit in (
        "data: 1\n\n",
        ":\n",
        "\n",
        "data:\n",
        "data\r\r",
        'event: x\ndata: {"error":1}\n\n',
        "a",
        "\r",
    ):
        yield Costly("events", events, unit)
    yield Costly("events", events, 'data: {"choices":[{"text":"a"}],"id":"' + "c" * 150 + '"}\n\n')
    yield Costly("chunks", crumbs, "a")
    for unit in (
        "a 1\n",
        "\n",
        'a{b="c",d="e"} 1\n',
        "#\n",
        'a{b="' + "\\" * 50,
        "a{" + 'b="c",' * 900 + "} 1\n",
    ):
        yield Costly("metrics", metrics, unit)
    yield Costly("completion", completion, '{"text":"a"},', '{"choices":[', "{}]}")
    yield Costly("completion", completion, '{"delta":{"content":"a"}},', '{"choices":[', "{}]}")
    yield Costly(
        "completion", completion, '{"function":{"arguments":"a"}},', '{"choices":[{"tool_calls":[', "{}]}]}"
    )
    yield Costly("router", router, '{"url":"http://a%"},', '{"workers":[', "{}]}", distinct=True)
    yield Costly("server_info", server_info, '{"a":1},', '{"version":"0.5.1","internal_states":[', "{}]}")
    yield Costly("server_info", server_info, '"a%":"b",', '{"version":"0.5.1",', '"z":1}', distinct=True)
    for unit in ("context length is ", "max_tokens ", "must have less than 1", "1"):
        yield Costly("error message", error_message, unit)
    for unit in ("1.", "1", "-", "-cu", "1post", " "):
        yield Costly("version", version, unit)
    marked = " ".join(_WORDS)
    garbled = " ".join((*(word[:-1] for word in _WORDS[:4]), _WORDS[5]))
    for unit in (f"{_WORDS[0]} ", f"{_WORDS[0]} {_WORDS[1]} ", f"{marked} ", f"{garbled} ", "a "):
        yield Costly("matcher", matched, unit)
    for unit in ("record 1 ", f"record 12 {marked} ", "record    "):
        yield Costly("frame numbers", numbered, unit)
    for unit in ("code q ", f"{_NONCE.word}x "):
        yield Costly("nonce", answered, unit)
    yield Costly("fleet file", from_yaml.parse, "a: &a [*a]\n")
    yield Costly("fleet file", from_yaml.parse, "[")
    yield Costly("fleet file", from_yaml.parse, "   k%: 1\n", _FLEET, distinct=True)
    yield Costly("fleet file", from_yaml.parse, "   slug: b\n", _FLEET)
    yield Costly(
        "fleet file", from_yaml.parse, "   - url: http://a%:1\n", _FLEET + "   nodes:\n", distinct=True
    )
    yield Costly("fleet table", from_csv.parse, "a%,", distinct=True)
    yield Costly("fleet table", from_csv.parse, "slug,", tail="url")
    yield Costly("fleet table", from_csv.parse, "a,http://a%:1\n", "slug,url\n", distinct=True)
    yield Costly("fleet table", from_csv.parse, "a,http://a%:1\n", "slug,url\n")
    yield Costly("fleet table", from_csv.parse, "!,!\n", "slug,url\n")
    yield Costly("request log", log, "1,1,a\n", _LOG)
    yield Costly("request log", log, "{\n")
    yield Costly("request log", log, "\n", _LOG)
    yield Costly("request log", log, ",", _LOG)


def outcome(case: Costly, body: bytes) -> str:
    """How parsing ended: "" or the sentence with which it was given up."""
    try:
        case.parse(body)
    except (TransportError, ValueError) as refused:
        return str(refused)
    return ""
