"""Sends short prompts of known length and keeps the usage block of each answer. What the check is for:
`kvaudit.auditor.checks.accounting`."""

from __future__ import annotations

from dataclasses import replace

from kvaudit.auditor.checks.accounting import CHECK
from kvaudit.auditor.checks.accounting.verdict import (
    AGAIN,
    PROMPTS,
    UNIQUE,
    Account,
    AccountingSeen,
    judge_accounting,
)
from kvaudit.auditor.checks.asker import Answer, Asker, Cell
from kvaudit.auditor.checks.contract import Audit
from kvaudit.auditor.checks.evidence_source import labelled_evidence
from kvaudit.auditor.checks.prober_protocol import Limits, Plan, Prober, Stop
from kvaudit.auditor.checks.trials import trial, unaskable
from kvaudit.auditor.text.prompts import draw_leads
from kvaudit.auditor.verdict import Result

SHORTEST, SPREAD = 300, 900
FIRST_WORDS = 8
"""Tokens of a beginning that an earlier run may have sent as well; with pages of 16 and more they fill none."""

FINE_PAGE = 16


def tolerance(added: int, limits: Limits) -> int:
    """Cached tokens that say nothing: the template's own, rounded up to a page. Where pages are finer than
    16 tokens, or unknown, a first word that another run happened to draw is not held against the target."""
    slack = 0 if limits.page_read and limits.page >= FINE_PAGE else FIRST_WORDS
    return -(-(added + slack) // limits.page) * limits.page


class AccountingProbe:
    """Sends 20 short prompts that nobody has sent before and compares the usage block."""

    id = CHECK.id

    def plan(self, prober: Prober) -> Plan:
        return Plan(PROMPTS, PROMPTS * (SHORTEST + SPREAD // 2), float(PROMPTS))

    async def observe(self, audit: Audit) -> AccountingSeen:
        """Send the prompts, as every tenant in turn."""
        prober = audit.prober
        if prober is None:
            return AccountingSeen(unaskable=True)
        limits = prober.limits
        seen = AccountingSeen(
            tolerance={
                (mode.value, tenant): tolerance(added, limits)
                for (mode, tenant), added in prober.templates.items()
            }
        )
        asker = Asker(prober, seen.trials, seen.evidence, seen.misses, planned=PROMPTS)
        try:
            for number, lead in enumerate(draw_leads(prober.draw, PROMPTS)):
                tenant = prober.tenants[number % len(prober.tenants)]
                cell = Cell(
                    UNIQUE,
                    SHORTEST + prober.draw(SPREAD),
                    tenant,
                    wanted=16,
                    lead=True,
                )
                cell = replace(cell, way=asker.ways.next(tenant, cell.tokens))
                answer = await asker.ask(cell, number, lead=lead)
                if Account(seen).odd(answer.trial):
                    await self._again(asker, cell, answer)
        except Stop as stop:
            seen.stopped = stop.reason
        return seen

    async def _again(self, asker: Asker, cell: Cell, answer: Answer) -> None:
        """Ask the prompt again whose counts are odd: identical where too much or too little was counted; what was in
        the cache is there now in any case, so then a fresh prompt of the same length."""
        found, way = answer.trial, answer.way
        if found.usage_right is not False:
            await asker.send(replace(cell, name=AGAIN, way=way), found.repeat)
            return
        room = asker.prober.room(found.tokens, cell.wanted)
        reply = await asker.prober.ask(cell.tenant, answer.prompt, max_tokens=room, stream=way.stream)
        again = trial(AGAIN, reply, tenant=cell.tenant, asked=None, room=room, repeat=found.repeat)
        asker.trials.append(replace(again, cached_tokens=None, mode=way.mode.value, stream=way.stream))
        asker.evidence.extend(labelled_evidence(reply, again))

    def judge(self, seen: AccountingSeen, audit: Audit) -> Result:
        if seen.unaskable:
            return unaskable(self.id, audit, "one tenant's key")
        return judge_accounting(seen)


PROBE = AccountingProbe()
