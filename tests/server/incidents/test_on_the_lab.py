"""What the checks really measure is what incidents read out of it: failing lengths, and lengths asked again."""

from __future__ import annotations

import pytest

from kvaudit.auditor import checks
from kvaudit.auditor.prober import Permission
from kvaudit.auditor.runner import Budget, CheckFinished, run
from kvaudit.auditor.targets import Credentials, Node, Target, Tenant
from kvaudit.auditor.verdict import Verdict
from kvaudit.lab.clock import run_virtual
from kvaudit.lab.config import LabConfig
from kvaudit.lab.inprocess import in_process
from kvaudit.server.incidents import result_meaning

LEAKS_AT = 5_322
"""The first length that the lab's small prefill pool rejects."""


def audited(fault, checks, *, replayed=(), tokens=None):
    async def main():
        async with in_process(LabConfig(), [fault]) as lab:
            about = lab.described()
            target = Target(
                slug="lab",
                nodes=tuple(Node(name=f"n{number}", url=url) for number, url in enumerate(lab.node_urls)),
                entry=lab.entry,
                model=about["model"],
                tenants=tuple(
                    Tenant(
                        tenant["name"], Credentials(headers=(("Authorization", f"Bearer {tenant['key']}"),))
                    )
                    for tenant in about["tenants"]
                ),
                complete=True,
                consent=True,
            )
            with lab.joined():
                budget = Budget(seconds=100_000, prompt_tokens=tokens)
                permission = Permission(seed=7, replayed=tuple(replayed))
                events = run(target, checks, budget=budget, permission=permission)
                return {
                    event.result.check: event.result
                    async for event in events
                    if isinstance(event, CheckFinished)
                }

    return run_virtual(main())


def test_the_leak_is_seen_where_it_is():
    found = audited("stale_pages", ["rejection"])["rejection"]
    assert (found.verdict, found.severity) == (Verdict.FAIL, "critical")
    assert result_meaning.kind_of("rejection", found.severity) == "leak"
    # At N the one way that was asked first may still read its last page, where the nonce stands.
    assert checks.failing_lengths("rejection", found.measures)[0] in (LEAKS_AT, LEAKS_AT + 1)


@pytest.mark.parametrize("check", ["rejection", "canary"])
def test_a_replay_really_asks_the_old_lengths_on_the_mended_engine(check):
    without = audited("healthy", [check], tokens=400_000)[check]
    again = audited("healthy", [check], replayed=[LEAKS_AT], tokens=400_000)[check]
    assert again.verdict is not Verdict.FAIL
    assert LEAKS_AT not in checks.answered_lengths(check, without.measures)
    assert LEAKS_AT in checks.answered_lengths(check, again.measures)


def test_a_replay_on_the_engine_that_still_leaks_fails():
    found = audited("stale_pages", ["rejection"], replayed=[LEAKS_AT + 640])["rejection"]
    assert found.verdict is Verdict.FAIL
