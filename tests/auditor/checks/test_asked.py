"""A source says which request its evidence belongs to, and is read back; all others stay what they were."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvaudit.auditor.checks.evidence_source import AskedRequest, asked_request, labelled_evidence
from kvaudit.auditor.checks.prober_protocol import Outcome, Reply
from kvaudit.auditor.checks.trials import Trial, distinct_evidence
from kvaudit.auditor.verdict import Evidence

OUTCOMES = st.sampled_from(list(Outcome))


def sources(found: Trial) -> list[str]:
    items = tuple(Evidence(kind, "0" * 64, "POST /v1/completions") for kind in ("request", "response"))
    return [item.source for item in labelled_evidence(Reply(found.outcome, evidence=items), found)]


def test_request_and_answer_say_what_they_are():
    said = "POST /v1/completions, N+1 (8,187 tokens), tenant b, round 7, refused"
    assert sources(Trial("N+1", 8_187, "b", Outcome.REFUSED, repeat=6)) == [said, said]
    assert asked_request(said) == AskedRequest("POST /v1/completions", "N+1", 8_187, "b", 7, "refused")


def test_an_answer_without_its_nonce_is_no_plain_answer():
    (first, _) = sources(Trial("N", 8_186, "a", Outcome.ANSWERED, nonce=False))
    assert asked_request(first).ended == "without nonce"


@given(st.text(max_size=60), st.integers(0, 10**9), st.text(max_size=200), OUTCOMES, st.integers(0, 500))
def test_whatever_a_tenant_is_called_it_is_read_back_and_fits(name, tokens, tenant, outcome, repeat):
    (said, _) = sources(Trial(name or "x", tokens, tenant, outcome, repeat=repeat))
    assert len(said) <= 300, "what a run keeps of a source"
    found = asked_request(said)
    assert (found.tenant, found.round, found.ended) == (tenant[:120], repeat + 1, outcome.value)


def test_a_tenant_cannot_pose_as_another_request():
    (said, _) = sources(Trial("N", 9, "b, round 3, answered", Outcome.REFUSED))
    assert asked_request(said) == AskedRequest(
        "POST /v1/completions", "N", 9, "b, round 3, answered", 1, "refused"
    )


@pytest.mark.parametrize(
    "source",
    ["", "POST /v1/completions", "GET http://10.0.0.7:30000/server_info", "read from http://10.0.0.7:30000"],
)
def test_other_sources_belong_to_no_request(source):
    assert asked_request(source) is None


def test_the_same_body_sent_twice_is_kept_for_both_requests():
    first, second = (Evidence("request", "0" * 64, f"POST /x, round {n}") for n in (1, 2))
    assert distinct_evidence([first, second, first]) == (first, second)


def test_a_full_canary_keeps_the_evidence_of_every_request():
    from kvaudit.auditor.checks.canary.sender import CONTROLS_EACH
    from kvaudit.auditor.checks.canary.thin import FULL

    pieces = [
        Evidence(kind, f"{n:064x}", f"POST /x, round {n}")
        for n in range(FULL * 6 + 4 * CONTROLS_EACH)
        for kind in ("request", "response", "sealed")
    ]
    one_each = [Evidence(piece.kind, f"{at:064x}", piece.source) for at, piece in enumerate(pieces)]
    assert len(distinct_evidence(one_each)) == 3 * 440
