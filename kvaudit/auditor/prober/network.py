"""Implements `kvaudit.auditor.checks.prober_protocol.Prober` over real connections (or the lab's, in memory)."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from kvaudit.auditor.checks.prober_protocol import Limits, Outcome, Reply, Stop
from kvaudit.auditor.checks.serving import Serving
from kvaudit.auditor.engines.completion import CompletionOptions, Dialect, Mode
from kvaudit.auditor.prober import health
from kvaudit.auditor.prober.calibration import CALIBRATION, find_ways
from kvaudit.auditor.prober.hearing import hear
from kvaudit.auditor.prober.pausing import Pauses
from kvaudit.auditor.prober.provenance import Provenance, strange_words
from kvaudit.auditor.prober.registry import Registry
from kvaudit.auditor.prober.replies import ReplyRecorder, ReplyText, Seal, outcome_of, sealed_text
from kvaudit.auditor.prober.silence import Pulse, Watch, Wedge, until_stopped
from kvaudit.auditor.prober.spending import TokenUsage, refuse_without_consent
from kvaudit.auditor.prober.tokenizing import TOKENIZER_SECONDS, NoTokenizer, token_ids
from kvaudit.auditor.prober.wire import Wire
from kvaudit.auditor.readings import EngineFacts
from kvaudit.auditor.text.markers import Draw, Marker, draw_marker, seeded
from kvaudit.auditor.text.prompts import Needle, Tail, draw_nonce
from kvaudit.auditor.text.spelling import Prompt, Spelling, counted
from kvaudit.auditor.text.wordings import USUAL, Wording
from kvaudit.auditor.transport import Limits as WireLimits
from kvaudit.auditor.transport import TransportError

ANSWER_SECONDS = 330.0
"""For one answer: above the 300 s that SGLang 0.5.20's decode waits before it fails (checks.md 3)."""

UNKNOWN_REPLICA = "one unknown replica behind the entry"
CONTROL_TOKENS = 512
"""Prompts up to this length that were read are the controls of a run: what their answers say is the model's own."""

_MAY_HAVE_RUN = (
    Outcome.ANSWERED,
    Outcome.EMPTY,
    Outcome.CUT,
    Outcome.BROKEN,
    Outcome.CANCELLED,
    Outcome.STRANGER,
    Outcome.FAILED,
    Outcome.TIMED_OUT,
    Outcome.GUARDED,
)

SHORT_TEXT = 1_000
"""Characters up to which the tokens of a text are remembered: fillings and questions come again and again."""

ENOUGH = 8
"""Answers with another request's text after which nothing more is asked: each is somebody's text in other hands."""


@dataclass(slots=True)
class NetworkProber:
    """Asks through ``wires`` (tenant name -> client of the entry). ``node_wires`` reach the nodes
    themselves: for health, and for a tokenizer that a router does not offer."""

    wires: Mapping[str, Wire]
    dialect: Dialect
    model: str
    limits: Limits
    nodes: Sequence[EngineFacts] = ()
    node_wires: Sequence[Wire] = ()
    consent: bool = False
    draw: Draw = field(default_factory=lambda: seeded(None))
    spent: TokenUsage = field(default_factory=TokenUsage)
    seal: Seal | None = None
    stopped: Callable[[], str] = lambda: ""  # "" while requests may be sent, else why not (a sentence)
    salts: Mapping[str, str] = field(default_factory=dict, repr=False)  # tenant -> the salt it always sends
    entry_sets_salts: bool = False
    earlier: Sequence[Marker] = field(default=(), repr=False)  # markers of the last 30 days, decoys too
    planted: Callable[[Marker], None] = lambda marker: None  # told every marker before it is sent
    scope: str = UNKNOWN_REPLICA
    serving: Serving = field(default_factory=Serving)
    run_seconds_left: Callable[[], float | None] = lambda: None
    seconds: float | None = None  # that one check may take; None = as long as the run
    answer_seconds: float = ANSWER_SECONDS
    mode: Mode | None = None
    modes: tuple[Mode, ...] = ()  # every way that works, the most exact first; ``mode`` is the usual one
    templates: dict[tuple[Mode, str], int] = field(default_factory=dict)  # tokens that the target adds itself
    untested: tuple[str, ...] = ()
    wording: Wording = USUAL
    idle_allowance: float = 0.0
    registry: Registry = field(init=False, repr=False)
    provenance: Provenance = field(default_factory=Provenance, repr=False)
    _calibrated: bool = False
    _began: float | None = None  # when the check that runs now did
    unwell: str = ""  # what the last look at the target's health found
    _absent: bool = False  # whether it said that nobody is there
    _slowest: float = 0.0  # seconds of the slowest answer
    _last_long: int = 0  # tokens of the last prompt that was longer than a short request
    _watch: Watch = field(init=False, repr=False)
    _pauses: Pauses = field(init=False, repr=False)
    _answerers: dict[Mode, tuple[str, str]] = field(default_factory=dict, repr=False)  # model, build
    _key: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)
    _spellings: dict[str, Spelling] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        self.modes = self.modes or ((self.mode,) if self.mode is not None else ())
        self.registry = Registry(self.earlier)
        self._pauses = Pauses(self.now, self.sleep)
        self._watch = Watch(self, note_silence=self.spent.note_silence)

    @property
    def wedge(self) -> Wedge | None:
        """The prompt after which nothing answered any more: nothing is sent to the target from then on."""
        return self._watch.wedge

    @property
    def slowed(self) -> str:
        """The sentence for a target that answered nobody for a while and then went on, "" for none."""
        if not self._watch.slowest:
            return ""
        return (
            f"For {self._watch.slowest:.0f} s after a prompt of {self._watch.slowest_tokens:,} tokens not even a short "
            "request was answered; then the target went on: slow, not stopped."
        )

    @property
    def tenants(self) -> tuple[str, ...]:
        return tuple(self.wires)

    @property
    def most_added(self) -> int:
        """Tokens that the target adds to a prompt, the most of all ways and tenants."""
        return max(self.templates.values(), default=0)

    @property
    def rounds_ceiling(self) -> int | None:
        """Prompt tokens that the check which runs now, or next, may spend."""
        return self.spent.allowed

    @property
    def seconds_left(self) -> float | None:
        """Until this check has to end; None = nobody said."""
        left = [self.run_seconds_left()]
        if self.seconds is not None:
            left.append((self.now() if self._began is None else self._began) + self.seconds - self.now())
        return min((one for one in left if one is not None), default=None)

    def now(self) -> float:
        """Seconds of the running loop's clock: real time, or the lab's virtual one."""
        return asyncio.get_running_loop().time()

    async def sleep(self, seconds: float) -> None:
        await until_stopped(asyncio.sleep(seconds), self.stopped)

    def room(self, prompt_tokens: int, wanted: int) -> int:
        found = self.dialect.room(self.nodes, prompt_tokens)
        return wanted if found is None else max(1, min(wanted, found))

    async def counters(self) -> Mapping[str, float]:
        """Counters of every node, as ``name/number of the node``; what a node does not show is absent."""
        answers = await asyncio.gather(*(self._metrics(wire) for wire in self.node_wires))
        return {
            f"{name}/{number}": value
            for number, body in enumerate(answers)
            for name, value in self.dialect.read_counters(body).items()
        }

    async def _metrics(self, wire: Wire) -> bytes:
        """A node's metrics, b"" when they do not come; a run that has to stop waits a second for them."""
        seconds = 1.0 if self.stopped() or self.wedge else TOKENIZER_SECONDS
        asking = wire.request("GET", self.dialect.metrics, limits=WireLimits(total=seconds))
        try:
            answer = await (asking if seconds <= 1.0 else until_stopped(asking, self.stopped))
        except (TransportError, Stop):
            return b""
        return answer.body if answer.status == 200 else b""

    def begin(self) -> None:
        """A new check begins: what came back so far belongs to the one before."""
        self.registry.begin()
        self.provenance.begin()
        self._began = self.now()

    async def aclose(self) -> None:
        """Close every connection."""
        for wire in (*self.wires.values(), *self.node_wires):
            await wire.aclose()

    # -- finding a way in ----------------------------------------------------------------------

    async def calibrate(self) -> None:
        """Find the ways to send prompts that every tenant may use. Raises `CannotAsk` with a sentence."""
        await find_ways(self)
        self._calibrated = True

    # -- prompts -------------------------------------------------------------------------------

    async def framed(
        self,
        marker: Marker,
        tokens: int,
        tail: Tail,
        needles: Sequence[Needle] = (),
        *,
        tenant: str = "",
        lead: str = "",
        mode: Mode | None = None,
    ) -> Prompt:
        """A prompt that the target counts as exactly ``tokens`` tokens, what it adds itself included, to be sent in
        ``mode`` (None: the usual way). ValueError when this target cannot be given one."""
        tenant, mode = tenant or self.tenants[0], mode or self.mode
        if mode is None:
            raise ValueError("the target has not been calibrated")
        own = tokens - self.templates.get((mode, tenant), 0)
        spelling = self._spelling(tenant)
        try:
            if mode.takes_ids:
                prompt = await spelling.framed(marker, own, tail, needles, lead, self.wording)
            else:
                prompt = await counted(
                    marker, own, tail, needles, lambda text: self._count(tenant, text), lead, self.wording
                )
        except NoTokenizer as problem:
            if self._calibrated:  # it answered before
                raise Stop(f"No prompt of exact length can be made any more: {problem}.") from None
            raise
        self.planted(replace(marker, tenant=marker.tenant or tenant))
        return replace(prompt, tokens=tokens, mode=mode.value)

    async def _count(self, tenant: str, text: str) -> int:
        if len(text) <= SHORT_TEXT:
            return len(await self._spelling(tenant).ids(text))
        return len(await self._encode(tenant, text))

    def _spelling(self, tenant: str) -> Spelling:
        if tenant not in self._spellings:
            self._spellings[tenant] = Spelling(lambda text: self._encode(tenant, text))
        return self._spellings[tenant]

    async def _encode(self, tenant: str, text: str) -> Sequence[int]:
        call = self.dialect.tokenize(text, self.model)
        if call is None:
            raise ValueError("this engine has no tokenizer endpoint")
        self._refuse_when_over()
        wires = (self.wires[tenant], *self.node_wires)
        return await token_ids(call, self.dialect, wires, stopped=self.stopped, sleep=self.sleep)

    # -- requests ------------------------------------------------------------------------------

    async def ask(
        self,
        tenant: str,
        prompt: Prompt,
        *,
        max_tokens: int,
        temperature: float = 0.0,
        salt: str | None = None,
        stream: bool = True,
        cancel_after: float | None = None,
        seconds: float | None = None,
        patient: bool = True,
    ) -> Reply:
        """One request as ``tenant``, read to its end, sent again after each pause that the target asks for (unless
        not ``patient``). Raises `Stop` when nothing may be sent."""
        wish = CompletionOptions(self.model, max_tokens, temperature, salt or self.salts.get(tenant), stream)

        async def send() -> Reply:
            return await self._ask(tenant, prompt, wish, cancel_after, seconds or self.answer_seconds)

        if cancel_after is not None or not patient:
            return await send()
        return await self._pauses.until_sent(tenant, send)

    async def _ask(
        self,
        tenant: str,
        prompt: Prompt,
        wish: CompletionOptions,
        cancel_after: float | None,
        seconds: float,
    ) -> Reply:
        self._mode_of(prompt)
        self._refuse_when_over()
        refuse_without_consent(self.limits, prompt.tokens, self.consent)
        self.spent.check(prompt.tokens)
        self.spent.requests += 1
        if prompt.contents is not None:
            self.registry.plant(prompt.contents, tenant)
        pulse = Pulse(self.now())
        least = CALIBRATION[-1] + self.templates.get((self._mode_of(prompt), tenant), 0)
        if prompt.tokens > least:
            self._last_long = prompt.tokens
        sending = self._send(tenant, prompt, wish, cancel_after, seconds, pulse)
        reply = await self._watch.over(sending, pulse, prompt.tokens, least)
        if prompt.tokens <= least and reply.outcome is Outcome.ANSWERED:
            self._watch.control = min(reply.seconds, self._watch.control or reply.seconds)
        if reply.outcome is Outcome.ANSWERED:
            self._slowest = max(self._slowest, reply.seconds)
        if reply.outcome in _MAY_HAVE_RUN:
            self.spent.prompt_tokens += prompt.tokens
        return self._whose(reply, prompt, tenant)

    def _mode_of(self, prompt: Prompt) -> Mode:
        mode = Mode(prompt.mode) if prompt.mode else self.mode
        if mode is None:
            raise ValueError("the target has not been calibrated")
        return mode

    def _whose(self, reply: Reply, prompt: Prompt, tenant: str) -> Reply:
        """The reply with what of other requests stands in it, whatever check asked."""
        contents = prompt.contents
        if contents is None:
            return reply
        said = {"text": reply.text, **reply.aside}
        traces = self.registry.search(said, contents, tenant=tenant, tokens=prompt.tokens)
        if self.seal is not None:
            places = {trace.where for trace in traces} - {"text"}
            source = f"{reply.evidence[0].source}, beside the text" if reply.evidence else "beside the text"
            beside = tuple(sealed_text(self.seal, source, said[place]) for place in sorted(places))
            reply = replace(reply, evidence=reply.evidence + beside)
        if reply.outcome is not Outcome.ANSWERED:
            return replace(reply, traces=traces)
        words = strange_words(reply.text, reply.completion_tokens, contents)
        own = contents.answered(reply.text)
        mode = self._mode_of(prompt)
        control = own and prompt.tokens <= CONTROL_TOKENS + self.templates.get((mode, tenant), 0)
        self.provenance.note(mode.value, words, control=control, own=own, traced=bool(traces))
        foreign = self.provenance.by_mode[mode.value].is_foreign(words, control=control)
        return replace(reply, traces=traces, foreign=foreign)

    def _refuse_when_over(self) -> None:
        """`Stop` when nothing may be sent any more, or when it is shown often enough that others' text comes back."""
        if self.registry.leaks > ENOUGH:
            raise Stop("Stopped: text of other requests came back in several answers.", harm=True)
        if self.wedge is not None:
            raise Stop(self.wedge.sentence, harm=True)
        if reason := self.stopped():
            raise Stop(reason)
        if self.seconds is not None and (self.seconds_left or 0.0) <= 0.0:
            raise Stop(f"The budget of {self.seconds / 60:g} minutes for one check is used up.")

    async def _send(
        self,
        tenant: str,
        prompt: Prompt,
        wish: CompletionOptions,
        cancel_after: float | None,
        seconds: float,
        pulse: Pulse,
    ) -> Reply:
        mode = self._mode_of(prompt)
        call = self.dialect.call(mode, prompt, wish)
        scribe = ReplyRecorder(self.dialect, mode.value, self._key, self.seal)
        began = self.now()
        heard = await hear(
            self.wires[tenant],
            call,
            self.dialect,
            seconds=seconds,
            cancel_after=cancel_after,
            max_tokens=wish.max_tokens,
            pulse=pulse,
            now=self.now,
        )
        outcome = heard.outcome
        if outcome is None:
            outcome = outcome_of(heard.status, heard.said, heard.complete, self.dialect, prompt, wish)
            if outcome in (Outcome.ANSWERED, Outcome.EMPTY, Outcome.CUT) and self._stranger(heard.said, mode):
                outcome = Outcome.STRANGER
        reply = scribe.reply(
            outcome,
            tenant=tenant,
            call=call,
            prompt=prompt,
            wish=wish,
            status=heard.status,
            said=heard.said,
            first=heard.first,
            seconds=self.now() - began,
            problem=heard.problem,
            aside=heard.aside.texts(),
        )
        return replace(reply, retry_after=heard.retry_after, cache_headers=heard.cache_headers)

    def _stranger(self, text: ReplyText, mode: Mode) -> bool:
        """Whether another model or build answered than the one that this way began with."""
        model, build = self._answerers.get(mode, ("", ""))
        if text.model and not (text.model == model if model else self._may_be_called(text.model)):
            return True
        if text.build and build and text.build != build:
            return True
        self._answerers[mode] = (model or text.model, build or text.build)
        return False

    def _may_be_called(self, name: str) -> bool:
        """Whether a model that answers under this name is the one that was asked for: a hosted API answers to an alias
        under the full name, a gateway under that of its node."""
        known = [self.model, *(facts.model.value or "" for facts in self.nodes)]
        return any(one in name or name in one for one in known if one) or not self.model

    # -- harm ----------------------------------------------------------------------------------

    async def healthy(self) -> str:
        """ "" when within 60 s, or as long as the slowest honest answer took, every reachable node says it is healthy
        and a short ordinary request is answered, else a sentence. `Stop` when the target only says that we ask too
        often. Whoever nobody answers any more is asked no more: the next call gives the same sentence."""
        if self.wedge is not None:
            return self.wedge.sentence
        seconds = max(health.SECONDS, min(self._slowest, self.answer_seconds))
        self.unwell = problem = await health.watched(self, self._ailing, seconds)
        if problem and not self._absent:  # silence is a wedge; a gateway that says nobody is there is none
            self._watch.harmed_by(self._last_long, problem)
        return problem

    async def _ailing(self, seconds: float) -> health.HealthProblem:
        """What is wrong now."""
        found = await self._nodes_unwell(seconds)
        if not found.problem:
            tenant = self.tenants[0]
            prompt = await self._short(tenant)
            reply = await self.ask(tenant, prompt, max_tokens=16, seconds=seconds, patient=False)
            found = health.of_reply(reply)
        self._absent = found.absent
        return found

    async def why_unwell(self) -> str:
        """What the nodes' health checks say, "" when all say that they are well."""
        return (await self._nodes_unwell(health.NODE_SECONDS)).problem

    async def _nodes_unwell(self, seconds: float) -> health.HealthProblem:
        for wire in self.node_wires:
            if (found := await health.of_node(wire, self.dialect.health, seconds)).problem:
                return found
        return health.HealthProblem()

    async def beside(self) -> Reply | None:
        """The reply to a short request of the last tenant, sent while another prompt is silent; None where
        none could be sent."""
        try:
            tenant = self.tenants[-1]
            prompt = await self._short(tenant)
            return await self.ask(tenant, prompt, max_tokens=16)
        except (Stop, ValueError):
            return None

    async def _short(self, tenant: str) -> Prompt:
        marker = draw_marker(self.draw)
        nonce = draw_nonce(self.draw, without=marker.words)
        tokens = CALIBRATION[0] + (self.templates.get((self.mode, tenant), 0) if self.mode else 0)
        return await self.framed(marker, tokens, nonce.tail, tenant=tenant)
