"""Runs a set of active checks against one target, the least dangerous first.

The passive readings come first. After every active check the target must be healthy and its
configuration unchanged; the first verified hit or sign of harm ends the set, and what was not asked
then is inconclusive, never passed over.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace

from kvaudit.auditor import checks as registry
from kvaudit.auditor.checks.contract import Audit, NodeSeen
from kvaudit.auditor.checks.prober_protocol import Stop, Trace
from kvaudit.auditor.checks.trials import needed
from kvaudit.auditor.prober.calibration import CannotAsk
from kvaudit.auditor.prober.network import NetworkProber
from kvaudit.auditor.prober.run_wide import RunMisses, judged
from kvaudit.auditor.prober.session_wire import session_for
from kvaudit.auditor.prober.setup import Permission, prober_for
from kvaudit.auditor.prober.silence import Wedge
from kvaudit.auditor.readings import Fingerprint, diff, fingerprint
from kvaudit.auditor.targets import Target
from kvaudit.auditor.verdict import Result, Verdict

HARM = ("critical", "high")

Reread = Callable[[], Awaitable[Sequence[NodeSeen]]]


class ProbeSet:
    """Use as an async context manager; ``reread`` reads the target's nodes again."""

    def __init__(self, target: Target, permission: Permission, reread: Reread) -> None:
        self._target, self._permission, self._reread = target, permission, reread
        self._prober: NetworkProber | None = None
        self._why_not = self._needs = ""
        self._before: Mapping[str, Fingerprint] = {}
        self._processes: Mapping[str, str] = {}
        self._misses = RunMisses()
        self._asking = ""  # the check whose answers the prober holds
        self._ended = ""
        self._next = "Resolve what ended the set, then run it again."

    async def __aenter__(self) -> ProbeSet:
        return self

    async def __aexit__(self, *error: object) -> None:
        if self._prober is not None:
            await self._prober.aclose()

    @property
    def spent(self) -> tuple[int, int]:
        """Requests sent and prompt tokens accepted."""
        if self._prober is None:
            return 0, 0
        return self._prober.spent.requests, self._prober.spent.prompt_tokens

    async def check(self, check_id: str, audit: Audit) -> Result:
        """Observe and judge one active check, then look after the target."""
        if self._ended:
            return _not_asked(check_id, self._ended, self._next)
        if check_id == "session":
            return await self._session(audit)
        calibrated: list[Trace] = []
        if self._prober is None and not self._why_not:
            await self._open(audit.nodes)
            calibrated = list(self._prober.registry.traces) if self._prober is not None else []
        check = registry.get(check_id)
        asked = replace(audit, prober=self._prober, why_no_prober=self._why_not, prober_needs=self._needs)
        if self._prober is None:
            # A refused key is our configuration's fault, not an open question about the target.
            result: Result = check.judge(await check.observe(asked), asked)
            return replace(result, verdict=Verdict.ERROR) if self._denied else result
        self._prober.spent.begin()
        self._prober.begin()
        self._prober.registry.traces.extend(calibrated)
        self._asking = check_id
        seen = await check.observe(asked)
        result = self._misses.judged(self._judged(check.judge(seen, asked)))
        result = await self._look_after(check_id, result)
        if self._prober.slowed and result.verdict is not Verdict.FAIL:
            result = replace(result, warn=True, summary=f"{result.summary} {self._prober.slowed}")
        return result

    def with_traces(self, result: Result) -> Result:
        """``result`` of the check that ended, worse where its answers held another request's text: also those that came
        while the target was looked after, and those of a check that broke off or was cut short."""
        if self._prober is None or result.check != self._asking:
            return result
        worse = self._judged(result)
        if worse.verdict is Verdict.FAIL and result.verdict is not Verdict.FAIL:
            return self._ending(result.check, worse)
        return worse

    def _judged(self, result: Result) -> Result:
        assert self._prober is not None
        found = self._prober.registry
        return judged(result, found.traces, self._prober.provenance, found.guesses)

    async def _session(self, audit: Audit) -> Result:
        """The check that asks no model: its wire goes to the declared session API."""
        check = registry.get("session")
        permission = self._permission
        wire, why_not = session_for(self._target, stopped=permission.stopped, seed=permission.seed)
        asked = replace(audit, session=wire, why_no_session=why_not)
        try:
            result: Result = check.judge(await check.observe(asked), asked)
        finally:
            if wire is not None:
                await wire.aclose()
        if result.verdict is Verdict.FAIL and result.severity in HARM:
            self._ended = f"The check session failed ({result.severity}), which ends the set."
        return result

    async def _open(self, nodes: Sequence[NodeSeen]) -> None:
        self._denied = False
        try:
            self._prober = await prober_for(self._target, nodes, self._permission)
        except CannotAsk as problem:
            self._why_not, self._denied, self._needs = str(problem), problem.denied, problem.needs
        except Stop as stop:
            self._why_not, self._needs = stop.reason, needed(stop.reason)
        self._before = _fingerprints(nodes)
        self._processes = _processes(nodes)

    async def _look_after(self, check_id: str, result: Result) -> Result:
        assert self._prober is not None
        if self._prober.wedge is not None:
            return self._wedged(result, self._prober.wedge)
        unhealthy = self._prober.unwell if self._unwell(result) else ""
        if result.verdict is Verdict.FAIL and result.severity in HARM and not unhealthy:
            return self._ending(check_id, result)
        if not unhealthy:
            try:
                unhealthy = await self._prober.healthy()
            except Stop as stop:
                self._ended = stop.reason
                return result
            if self._prober.wedge is not None:
                return self._wedged(result, self._prober.wedge)
        nodes = await self._reread()
        moved, restarted = self._moved(nodes), self._restarted(nodes)
        if result.verdict is not Verdict.FAIL or self._unwell(result):  # what else was seen stands
            if moved and not unhealthy:
                return _belongs_to_neither(
                    result, f"The configuration changed during {check_id} ({moved})", "change"
                )
            if restarted:  # whoever did it: what was silent meanwhile says nothing about a prompt
                return _belongs_to_neither(result, f"{restarted} was restarted during {check_id}", "restart")
        if result.verdict is Verdict.FAIL and result.severity in HARM:
            return self._ending(check_id, result)
        if unhealthy:
            self._ended = unhealthy
            return replace(
                result,
                verdict=Verdict.FAIL,
                severity="high",
                summary=f"After {check_id} the deployment is not healthy: {unhealthy}",
                next="Restart it and look at its queues; do not probe it again before that is understood.",
            )
        return result

    def _restarted(self, nodes: Sequence[NodeSeen]) -> str:
        """The nodes whose process is another than when the set began, "" for none or where that is not shown."""
        now = _processes(nodes)
        other = [name for name, process in self._processes.items() if now.get(name, process) != process]
        self._processes = {**self._processes, **now}
        return ", ".join(other)

    def _ending(self, check_id: str, result: Result) -> Result:
        self._ended = f"The check {check_id} failed ({result.severity}), which ends the set."
        return result

    def _unwell(self, result: Result) -> bool:
        """Whether a check failed for nothing but the target's health."""
        assert self._prober is not None
        return bool(self._prober.unwell) and self._prober.unwell in result.summary

    def _wedged(self, result: Result, wedge: Wedge) -> Result:
        """A prompt that stops a server from answering is a fail, whatever the check was about, and ends the
        run. Only a leak is worse."""
        self._ended, self._next = wedge.sentence, wedge.next_step
        measures = {**result.measures, **wedge.measures}
        if result.verdict is Verdict.FAIL and result.severity == "critical":
            return replace(result, measures=measures, summary=f"{result.summary} {wedge.sentence}")
        if not wedge.proven:
            return replace(
                result,
                verdict=Verdict.FAIL if result.verdict is Verdict.FAIL else Verdict.INCONCLUSIVE,
                warn=True,
                measures=measures,
                summary=f"{result.summary} {wedge.sentence}",
                next=wedge.next_step,
            )
        return replace(
            result,
            verdict=Verdict.FAIL,
            severity="high",
            warn=False,
            measures=measures,
            summary=wedge.sentence,
            next=wedge.next_step,
        )

    def _moved(self, nodes: Sequence[NodeSeen]) -> str:
        """What changed since the set began, "" when nothing significant did. A node that cannot be
        read now is a change as well: nothing says that it is still the same."""
        after = _fingerprints(nodes)
        for name, before in self._before.items():
            if name not in after:
                return f"{name} cannot be read any more"
            changed = [change.name for change in diff(before, after[name]) if change.significant]
            if changed:
                return f"{name}: {', '.join(changed[:3])}"
        return ""


def _fingerprints(nodes: Sequence[NodeSeen]) -> dict[str, Fingerprint]:
    return {node.name: fingerprint(node.facts) for node in nodes if node.facts is not None}


def _processes(nodes: Sequence[NodeSeen]) -> dict[str, str]:
    """Node -> its process, by when it started; nodes that do not show it are absent."""
    return {
        node.name: node.facts.process.value
        for node in nodes
        if node.facts is not None and node.facts.process.value
    }


def _belongs_to_neither(result: Result, what: str, change: str) -> Result:
    """``result`` without a verdict, and without anything that could be added up."""
    return replace(
        result,
        measures={name: value for name, value in result.measures.items() if name != "evidence"},
        verdict=Verdict.INCONCLUSIVE,
        severity="",
        warn=True,
        summary=f"{what}: its result belongs to neither.",
        next=f"Run it again now that the {change} is done.",
    )


def _not_asked(check_id: str, why: str, next_step: str) -> Result:
    return Result(
        check_id,
        Verdict.INCONCLUSIVE,
        f"{check_id} was not asked: {why}",
        measures={"asked": False},
        next=next_step,
        does_not_prove="Anything: no request was sent.",
    )
