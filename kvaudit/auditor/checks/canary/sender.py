"""Sends the rounds of a canary run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kvaudit.auditor.checks.asker import CONTROL
from kvaudit.auditor.checks.canary.asking import Answer, Asking, Cell, Question
from kvaudit.auditor.checks.canary.breaking_off import why_no_more
from kvaudit.auditor.checks.canary.counting import FILLING, Counting
from kvaudit.auditor.checks.canary.design import PHRASE, PHRASES, SURFACING, Round
from kvaudit.auditor.checks.canary.follow_up import Ways, follow_up, misses_of
from kvaudit.auditor.checks.canary.seen import CanarySeen
from kvaudit.auditor.checks.canary.strata import BOUNDARY
from kvaudit.auditor.checks.prober_protocol import MARKER, Limits, Outcome, Prober, Stop
from kvaudit.auditor.checks.trials import Trial
from kvaudit.auditor.checks.ways import LONGEST_TEXT, Way

CONTROL_TOKENS = 512
CONTROLS_EACH = 20
"""Short prompts of each way to ask before the rounds, that ask for their phrase. With those of sixty rounds they are
thirty, fewer than which say nothing of a model's own words."""

LEAST_VICTIM = 2_048
REPEATS_OF_SUSPICION = 10
MORE_AFTER_A_HIT = 5
REPLAYED_ROUNDS = 3
SECOND_WORDS = 2


def cells(limits: Limits, consent: bool, drawn: Cell, *, chained: bool = False) -> tuple[Cell, ...]:
    """The requests of a round in their order: a victim at least as long as what may read its pages, the lengths that
    should be refused, a short control, and the drawn length last, since an accepted request overwrites the pages
    that the others would read. In a chain the round before is the victim, but at the boundary, and the lengths to be
    refused, which take long to send, stand beside the boundary alone."""
    n, longest = limits.first_rejected, limits.longest_safe
    if n is None or longest is None:
        return ()
    order = [Cell("victim", min(longest, max(drawn.tokens + limits.page, LEAST_VICTIM)))]
    if consent or not limits.dangerous:
        order += [Cell("N", n, True), Cell("N+1", n + 1, True)]
        if limits.context is not None and limits.context > n + 1:
            order.append(Cell("midpoint", (n + limits.context) // 2, True))
    if chained:
        return (*order, drawn) if drawn.name == BOUNDARY else (drawn,)
    order += [Cell("control", min(CONTROL_TOKENS, longest)), drawn]
    return tuple(order)


class CanarySender:
    """Sends for one run; what it notes is its observation's."""

    def __init__(self, prober: Prober, seen: CanarySeen) -> None:
        self._prober, self._seen = prober, seen
        self._asking = Asking(prober, seen)
        self._counting = Counting(prober, seen)

    # -- what is sent --------------------------------------------------------------------------

    async def fill(self) -> None:
        """Serve a pool of own frames first: what the rounds read after it is ours, in whatever order pages go out."""
        await self._counting.fill(self._filling)

    async def _filling(self, number: int, wanted: int) -> int:
        prober = self._prober
        mode = next((mode for mode in prober.modes if mode.takes_ids), prober.modes[0])
        longest = prober.limits.longest_safe or CONTROL_TOKENS
        tokens = min(longest if mode.takes_ids else min(longest, LONGEST_TEXT), max(wanted, CONTROL_TOKENS))
        tenant = prober.tenants[number % len(prober.tenants)]
        await self._ask(Question(Cell(FILLING, tokens), number, Way(mode, number % 2 == 0), tenant, PHRASE))
        return tokens

    async def surfacing(self) -> None:
        """The positive control of each way to ask: would a stranger's pages turn into the stranger's phrase? The
        pages are one's own and the question is the round's, so the own phrase comes back where a stranger's would."""
        prober = self._prober
        await self._counting.read()
        top = min(CONTROL_TOKENS, prober.limits.longest_safe or CONTROL_TOKENS)
        for mode in prober.modes:
            for number in range(CONTROLS_EACH):
                tail = PHRASES[number // 2 % 2]
                cell = Cell(
                    SURFACING, max(min(256 + prober.most_added, top), top - prober.draw(max(1, top // 2)))
                )
                tenant = prober.tenants[number % len(prober.tenants)]
                await self._ask(Question(cell, number, Way(mode, number % 2 == 0), tenant, tail))

    async def rounds(self, planned: Sequence[Round]) -> None:
        """Send the planned rounds, then test that the target is healthy."""
        seen, prober = self._seen, self._prober
        for each in planned:
            if each.idle:
                await prober.sleep(each.idle)
                seen.idle += each.idle
            drawn = Cell(each.length.stratum, each.length.tokens, drawn=True)
            await self._round(each, cells(prober.limits, prober.consent, drawn, chained=each.chained))
            seen.rounds_done += 1
        seen.unhealthy = await prober.healthy()

    async def replay(self, lengths: Sequence[int], planned: Sequence[Round]) -> None:
        """Lengths that leaked in an earlier run, after the rounds, each behind a victim of its own and in the ways of
        the last rounds."""
        limits = self._prober.limits
        longest, limit = limits.longest_safe, limits.first_rejected
        if not lengths or not planned or longest is None or limit is None:
            return
        allowed = [tokens for tokens in lengths if tokens < limit - 8 or not self._seen.withheld]
        order = [Cell("victim", longest)]
        order += [Cell(f"replayed {tokens}", tokens, tokens >= limit) for tokens in allowed]
        for number in range(REPLAYED_ROUNDS):
            model = planned[-1 - number % len(planned)]
            await self._round(replace(model, number=len(planned) + number), order)
        self._seen.unhealthy = await self._prober.healthy()

    async def _round(self, each: Round, order: Sequence[Cell]) -> None:
        planted = read = await self._counting.read()
        if len(order) == 1 and each.number - 1 in self._seen.windows:  # planted by the round before
            planted = self._seen.windows[each.number - 1][1]
        for at, cell in enumerate(order):
            if not self._is_left_out(cell, each.way):
                tenant = each.reader if cell.drawn else each.tenant(at)
                tail = each.tail if cell.drawn else each.tail_of(at)
                if cell.drawn:
                    read = await self._counting.read()
                await self._ask(Question(cell, each.number, each.way, tenant, tail))
        self._seen.windows[each.number] = planted, read, await self._counting.read()
        self._leave_out(order)

    def _leave_out(self, order: Sequence[Cell]) -> None:
        """Lengths above the limit that brought no answer but a failing server, in one mode, or streamed or whole,
        are not sent that way again: each may hold pages for minutes, and says nothing."""
        for cell in (one for one in order if one.above):
            tried = [one for one in self._seen.asked if one.trial.name == cell.name]
            for part in {part for one in tried for part in one.parts}:
                of = [one.trial for one in tried if part in one.parts]
                if keeps_failing(of):
                    self._seen.left_out[f"{cell.name} ({part})"] = of[-1].outcome.value

    def _is_left_out(self, cell: Cell, way: Way) -> bool:
        return any(f"{cell.name} ({part})" in self._seen.left_out for part in (way.mode.value, way.delivery))

    async def _ask(self, question: Question) -> None:
        """Ask, and follow up at once what is suspicious or missed. `Stop` where sending more can only cost."""
        answer = await self._asked(question)
        limit = self._prober.limits.first_rejected
        if why := why_no_more(self._seen.asked, limit, self._seen.planned_trials):
            raise Stop(why)
        if answer.suspicious:
            for _ in range(REPEATS_OF_SUSPICION):
                await self._asked(question, repeated=True)
        cell = question.cell
        if answer.asked.trial.missed and cell.name not in (CONTROL, SURFACING):
            question = replace(question, tail=answer.asked.tail)
            if any(trace.kind != MARKER for trace in answer.asked.trial.traces):
                await self._second_word(question)
            await follow_up(
                misses_of(self._seen, answer.asked),
                answer.asked.trial,
                self._ways(question, answer),
                above=cell.above,
            )

    async def _second_word(self, question: Question) -> None:
        """After an answer that gave the word of another request: let the others plant again, and ask once more. One
        such word may be a favourite of the model's, a new one in its place is not (`prober.run_wide` decides)."""
        limits = self._prober.limits
        longest = limits.longest_safe or question.cell.tokens
        planting = Cell("victim", min(max(question.cell.tokens + limits.page, LEAST_VICTIM), longest))
        for other in (tenant for tenant in self._prober.tenants if tenant != question.tenant):
            for _ in range(SECOND_WORDS):
                await self._asked(replace(question, cell=planting, tenant=other), repeated=True)
                await self._asked(question, repeated=True)

    async def _asked(self, question: Question, *, repeated: bool = False) -> Answer:
        """`Stop` at a verified hit: one decides; a few more requests, with consent, say how often it happens."""
        answer = await self._asking.ask(question, repeated=repeated)
        if (hit := answer.hit) is None:
            return answer
        if self._prober.consent:
            for _ in range(MORE_AFTER_A_HIT):
                self._seen.repeats += 1
                again = await self._asking.ask(replace(question, tail=hit.tail), repeated=True)
                self._seen.repeat_hits += again.hit is not None
        raise Stop(f"Stopped at the first verified hit: {hit.kind}, at {hit.length:,} tokens.", harm=True)

    def _ways(self, question: Question, answer: Answer) -> Ways:
        longest = self._prober.limits.longest_safe or CONTROL_TOKENS
        control = Cell(CONTROL, min(max(CONTROL_TOKENS, self._asking.phrase_fits), longest))

        async def fresh() -> Trial:
            return (await self._asked(question, repeated=True)).asked.trial

        async def short() -> Trial:
            return (await self._asked(replace(question, cell=control), repeated=True)).asked.trial

        async def replay() -> bool | None:
            return await self._asking.again(question, answer)

        return Ways(fresh, short, replay)


def keeps_failing(trials: Sequence[Trial]) -> bool:
    """Twice from the first on, or three times in a row."""
    lost = [one.late or one.outcome in (Outcome.FAILED, Outcome.BROKEN) for one in trials]
    return (len(lost) >= 2 and all(lost)) or lost[-3:] == [True] * 3
