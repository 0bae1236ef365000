"""SGLang, 0.4.6 to 0.5.23, Python and Rust front ends, and the routers that stand before it.

Sources are the released wheels (paths below ``sglang/srt/``): ``entrypoints/http_server.py`` for the
endpoints, ``managers/scheduler_components/internal_state.py`` for ``internal_states``,
``managers/load_snapshot.py`` for ``/v1/loads``. Every field but the version is optional: the Rust
front end shows a short allow-list, and fields come and go between releases.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from packaging.version import InvalidVersion, Version

from kvaudit.auditor.engines import _json, routers
from kvaudit.auditor.engines.answers import Answers, Step
from kvaudit.auditor.engines.sglang import ENGINE
from kvaudit.auditor.engines.sglang.configuration import (
    components,
    conditions,
    exposures,
    features,
    settings,
)
from kvaudit.auditor.engines.sglang.pools import rank_pools
from kvaudit.auditor.engines.sglang.seen import NEW_INFO, OLD_INFO, ParsedAnswers, base_cards, parse_answers
from kvaudit.auditor.readings import (
    EngineFacts,
    Reading,
    derived,
    largest,
    read,
    smallest_pool,
    text,
    tokens,
    unknown,
    whole_number,
)

COUNTERS = (
    "sglang:num_bootstrap_failed_reqs_total",
    "sglang:num_transfer_failed_reqs_total",
    "sglang:num_prefill_retries_total",
    "sglang:num_aborted_requests_total",
    "sglang:num_used_tokens",
)

if TYPE_CHECKING:
    from kvaudit.auditor.engines.completion import Dialect

_CONTEXT_FIELDS = ("max_context_length", "context_length")  # the first is the Rust front end's
_ROLES = {"null": "unified", "unified": "unified", "prefill": "prefill", "decode": "decode"}


class SGLang:
    id: ClassVar[str] = ENGINE.id
    title: ClassVar[str] = ENGINE.title
    plan: ClassVar[Sequence[Step]] = (
        Step(NEW_INFO, identifies=True, process=True),
        Step(OLD_INFO, unless=NEW_INFO, identifies=True, process=True),
        Step("/v1/models", identifies=True),
        *routers.STEPS,
        Step("/v1/loads"),
        Step("/model_info"),
        Step("/metrics", process=True),
    )
    gets: ClassVar[frozenset[str]] = frozenset({"/health", "/openapi.json", "/ready"})
    posts: ClassVar[frozenset[str]] = frozenset(
        {"/generate", "/v1/completions", "/v1/chat/completions", "/tokenize", "/v1/tokenize"}
    )

    def dialect(self) -> Dialect:
        """How active checks ask it; imported only then."""
        from kvaudit.auditor.engines.sglang.dialect import SGLangDialect

        return SGLangDialect()

    def recognises(self, answers: Answers) -> bool:
        seen = parse_answers(answers)
        if routers.is_gateway(answers):
            return True
        if "version" in seen.info and ("internal_states" in seen.info or "max_total_num_tokens" in seen.info):
            return True
        cards = (_json.mapping(card) for card in _json.sequence(seen.models.get("data")))
        return seen.metrics.any_with("sglang:") or any(card.get("owned_by") == "sglang" for card in cards)

    def facts(self, answers: Answers) -> EngineFacts:
        if routers.is_gateway(answers):
            return routers.gateway_facts(self.id, answers)
        seen = parse_answers(answers)
        ranks, notes, unequal = rank_pools(
            seen.where, seen.info, seen.states, seen.loads, seen.metrics, answers
        )
        role = _role(seen)
        context, unlike = _context(seen)
        return EngineFacts(
            engine=self.id,
            version=_version(seen),
            model=_model(seen),
            revision=text(seen.info.get("revision"), f"{seen.where} revision"),
            context=context,
            pool=smallest_pool(ranks),
            input_limit=_input_limit(seen),
            role=role,
            process=_process(seen),
            ranks=ranks,
            settings=settings(seen),
            conditions=conditions(seen, role),
            features=features(seen),
            components=components(seen, role),
            exposures=exposures(answers),
            counters={name: total for name in COUNTERS if (total := seen.metrics.total(name)) is not None},
            contradictions=(*unlike, *unequal),
            notes=(*notes, *_notes(seen, role)),
        )


def _version(seen: ParsedAnswers) -> Reading[str]:
    reported = text(seen.info.get("version"), f"{seen.where} version")
    loads = text(seen.loads.get("version"), "GET /v1/loads version")
    if reported.known and loads.known and reported.value != loads.value:
        return unknown(
            f"{reported.source} is {reported.value} but {loads.source} is {loads.value}: "
            "two processes answered; address one process"
        )
    if reported.known or loads.known:
        return reported if reported.known else loads
    return unknown(_json.why_not(seen.answers, NEW_INFO, OLD_INFO, "/v1/loads"))


def _model(seen: ParsedAnswers) -> Reading[str]:
    name = text(seen.info.get("served_model_name"), f"{seen.where} served_model_name")
    if name.known:
        return name
    for card in base_cards(seen):
        return text(card.get("id"), "GET /v1/models data[].id")
    return text(seen.info.get("model_path"), f"{seen.where} model_path")


def _context(seen: ParsedAnswers) -> tuple[Reading[int], tuple[str, ...]]:
    """The largest context that any source tells, and how they differ. ``context_length`` is what was asked for on the
    command line, null unless set; then it is the effective value too (``configs/model_config.py``)."""
    card = "GET /v1/models data[].max_model_len"
    gauge = "GET /metrics sglang:context_len"
    sources = [
        *(tokens(each.get("max_model_len"), card) for each in base_cards(seen)),
        *(tokens(sample.value, gauge) for sample in seen.metrics.samples("sglang:context_len")),
        *(tokens(seen.info.get(name), f"{seen.where} {name}") for name in _CONTEXT_FIELDS),
        *(
            tokens(state.get("context_length"), f"{seen.where} internal_states[].context_length")
            for state in seen.states
        ),
    ]
    found, unlike = largest(sources)
    return found or unknown(
        f"{_json.why_not(seen.answers, '/v1/models')}; no sglang:context_len in /metrics; "
        f"context_length is {_json.label(seen.info.get('context_length', 'absent'), 40)}"
    ), unlike


def _input_limit(seen: ParsedAnswers) -> Reading[int]:
    """``max_req_input_len`` as read: the first length the scheduler refuses. It is never
    recomputed, since hybrid, context-parallel and diffusion models subtract differently."""
    if seen.info and seen.short and "max_req_input_len" not in seen.info:
        return unknown("the Rust front end does not list max_req_input_len")
    return tokens(seen.info.get("max_req_input_len"), f"{seen.where} max_req_input_len")


def _role(seen: ParsedAnswers) -> Reading[str]:
    """The live role of the ranks, else the one of the loads, else the start-up one."""
    live = [state.get("disaggregation_mode") for state in seen.states if "disaggregation_mode" in state]
    loads = [
        _json.mapping(_json.mapping(load).get("disaggregation")).get("mode")
        for load in _json.sequence(seen.loads.get("loads"))
    ]
    start = [seen.info["disaggregation_mode"]] if "disaggregation_mode" in seen.info else []
    model = [seen.model["disaggregation_mode"]] if "disaggregation_mode" in seen.model else []
    gauge = [
        sample.labels.get("engine_type") for sample in seen.metrics.samples("sglang:prompt_tokens_total")
    ]
    for source, values in (
        (f"{seen.where} internal_states[].disaggregation_mode", live),
        ("GET /v1/loads loads[].disaggregation.mode", [mode for mode in loads if mode is not None]),
        (f"{seen.where} disaggregation_mode", start),
        ("GET /model_info disaggregation_mode", model),
        ("GET /metrics label engine_type", [kind for kind in gauge if kind is not None]),
    ):
        if not values:
            continue
        roles = {_ROLES.get(value) if isinstance(value, str) else None for value in values}
        if len(roles) == 1 and (role := roles.pop()) is not None:
            return read(role, source)
        return unknown(f"{source} is {', '.join(sorted({_json.label(value, 40) for value in values}))[:200]}")
    if seen.info and not seen.short and _before_roles(_version(seen)):
        return derived("unified", f"no release before {ENGINE.roles_since} has roles")
    return unknown(f"no role in {seen.where}, /v1/loads, /model_info or /metrics; declare it")


def _before_roles(version: Reading[str]) -> bool:
    """A development build may count from an unrelated tag."""
    try:
        release = Version(str(version.value))
    except InvalidVersion:
        return False
    return not release.is_devrelease and release < Version(ENGINE.roles_since)


def _process(seen: ParsedAnswers) -> Reading[str]:
    """``startup_time`` holds durations measured once at start: their digest names the start. Releases that have none
    tell it by their metrics, where these are on."""
    started = seen.info.get("startup_time")
    if isinstance(started, dict):  # each of several HTTP workers of one engine has a tokenizer of its own
        started = {name: seconds for name, seconds in started.items() if name != "tokenizer_e2e"}
    source = f"{seen.where} startup_time (digest)"
    if not started:
        parts = sorted(
            _json.digest(state["startup_time"]) for state in seen.states if state.get("startup_time")
        )
        started, source = parts, f"{seen.where} internal_states[].startup_time (digest)"
    name = _json.digest(started) if started else ""
    if name:
        return derived(name, source)
    for sample in seen.metrics.samples("process_start_time_seconds"):
        if sample.value:
            return read(f"{sample.value:.2f}", "GET /metrics process_start_time_seconds")
    return unknown(f"no startup_time in {seen.where} and no process_start_time_seconds in /metrics")


def _notes(seen: ParsedAnswers, role: Reading[str]) -> list[str]:
    said = []
    if seen.info and seen.short:
        said.append("the Rust front end lists few fields: no role, no limits and no arguments")
    start = seen.info.get("disaggregation_mode")
    if role.known and isinstance(start, str) and _ROLES.get(start) not in (None, role.value):
        said.append(f"the role was switched at run time: started as {_ROLES[start]}, now {role.value}")
    shards = whole_number(seen.info.get("dcp_size"))
    if shards is not None and shards > 1:
        said.append(
            f"context parallelism shares a request among {shards} shards, so it may hold more than the pool "
            "that is told: low confidence; max_req_input_len counts the shards"
        )
    if not seen.info and _json.status(seen.answers, "/v1/models") == 200:
        said.append(f"no server information: {_json.why_not(seen.answers, NEW_INFO, OLD_INFO)}")
    return said


ADAPTER = SGLang()
