"""What a pipeline keeps between its runs: whole, in order, of one deployment; anything else is refused, and kept."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import orjson
import pytest

from kvaudit.auditor.commands.adding_up import OF_A_NIGHT, TO_QUALIFY, added_up, evidence_of
from kvaudit.auditor.commands.state_file import SCHEMA, StateFile, UnusableState
from kvaudit.auditor.verdict import Result, Verdict

NOW = datetime(2026, 12, 1, 3, tzinfo=UTC)
PASS, OPEN, FAIL = Verdict.PASS, Verdict.INCONCLUSIVE, Verdict.FAIL
WORDS = "amber falcon meadow velvet harbor cedar"


def canary(weight: float, verdict: Verdict = OPEN, stratum: str = "log-uniform", **said: object) -> Result:
    evidence = {
        "build": "b1",
        "build_said": "sglang 0.5.22, page 64",
        "where": "production",
        "void_share": 0.0,
        "trials": [
            {
                "stratum": stratum,
                "mode": "ids",
                "tail": "phrase",
                "replica": "",
                "count": 99,
                "weight": weight,
            }
        ],
        "surfacing": [{"mode": "ids", "tail": "phrase", "trials": 4_000, "surfaced": 4_000}],
        "hits": 0,
        "doubt": "",
    } | said
    measures = {"evidence": evidence, "live_markers": [{"words": WORDS, "tenant": "a", "request": "1"}]}
    return Result("canary", verdict, "It adds a little.", measures, "Run it again.", "Much.")


def kept(path: Path, *runs: tuple[int, Result], deployment: str = "glm") -> StateFile:
    for days, result in runs:
        StateFile.opened(str(path), deployment).add([result], NOW - timedelta(days=days))
    return StateFile.opened(str(path), deployment)


def test_runs_add_up_from_one_to_the_next(tmp_path: Path) -> None:
    state = kept(tmp_path / "state", (40, canary(50)), (2, canary(9)), (1, canary(5)))
    assert [len(one.trials) for one in state.evidence] == [1, 1, 1]
    assert [str(one) for one in state.markers(NOW)] == [WORDS, WORDS]  # of 30 days
    tonight = canary(7)
    runs = [*state.evidence, evidence_of(tonight, NOW)]
    result = added_up(tonight, [one for one in runs if one], NOW, decide=OF_A_NIGHT)
    assert result.verdict is PASS
    assert "30 days 21.0 of 20, 7 days 21.0 of 7.5 effective trials on sglang 0.5.22" in result.summary
    assert "fewer than 14%" in result.summary


@pytest.mark.parametrize(
    ("results", "decide", "verdict", "said"),
    [
        ([canary(30)], OF_A_NIGHT, PASS, "30 days 30.0 of 20"),
        ([canary(30)], TO_QUALIFY, OPEN, "boundary 0.0 of 20"),
        ([canary(21, stratum="boundary", where="newcomer")], TO_QUALIFY, PASS, "boundary 21.0 of 20"),
        ([canary(21, stratum="boundary", where="newcomer")], OF_A_NIGHT, OPEN, "7 days 0.0 of 7.5"),
        ([canary(6)], OF_A_NIGHT, OPEN, "30 days 6.0 of 20"),
        ([canary(9, PASS)], OF_A_NIGHT, OPEN, "30 days 9.0 of 20"),
        ([canary(30, build="")], OF_A_NIGHT, OPEN, "Nobody knows which build"),
        ([canary(30, build="b0"), canary(6)], OF_A_NIGHT, OPEN, "30 days 6.0 of 20"),
        ([canary(30, void_share=0.2)], OF_A_NIGHT, OPEN, "30 days 0.0 of 20"),
        ([canary(1, hits=1), canary(30)], OF_A_NIGHT, OPEN, "nobody has said that it is mended"),
        ([canary(30, doubt="a miss")], OF_A_NIGHT, OPEN, "It adds a little."),
        ([canary(30, FAIL)], OF_A_NIGHT, FAIL, "It adds a little."),
    ],
)
def test_the_sums_decide_and_what_was_seen_stands(
    results: list[Result], decide: frozenset[str], verdict: Verdict, said: str
) -> None:
    runs = [one for one in (evidence_of(result, NOW) for result in results) if one is not None]
    result = added_up(results[-1], runs, NOW, decide=decide)
    assert (result.verdict, said in result.summary) == (verdict, True), result.summary
    assert result.next


def test_a_hit_stays_until_somebody_says_that_it_is_mended_and_makes_the_next_pass_dearer(
    tmp_path: Path,
) -> None:
    state = kept(tmp_path / "state", (3, canary(1, FAIL, hits=1)))
    state.note_fixed(NOW - timedelta(days=2))
    state = StateFile.opened(str(state.path), "glm")
    for weight, verdict in ((24, OPEN), (26, PASS)):
        tonight = canary(weight)
        runs = [one for one in (*state.evidence, evidence_of(tonight, NOW)) if one is not None]
        result = added_up(tonight, runs, NOW, decide=OF_A_NIGHT, fixes=state.fixes)
        assert result.verdict is verdict, result.summary
        assert "of 25" in result.summary


def _cut(body: bytes) -> bytes:
    return body[:-20]


def _changed(body: bytes) -> bytes:
    return body.replace(b'"weight":9', b'"weight":90', 1)


def _dropped(body: bytes) -> bytes:
    lines = body.splitlines(keepends=True)
    return b"".join([lines[0], *lines[2:]])


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (_cut, "broken: line 3 is not whole"),
        (_changed, "was changed: line 3 does not follow"),
        (_dropped, "was changed: line 2 does not follow"),
        (lambda body: b"name: my fleet\n", "no file of kvaudit"),
        (lambda body: b"\x00\xff" * 50, "no file of kvaudit"),
        (lambda body: b'{"schema": "other/1"}\n', "no file of kvaudit"),
        (lambda body: b"[]\n", "no file of kvaudit"),
        (lambda body: body.replace(b'"glm"', b'"qwen"', 1), "holds what was found of qwen"),
    ],
)
def test_a_broken_or_foreign_file_is_refused_and_not_touched(
    tmp_path: Path, spoil: Callable[[bytes], bytes], said: str
) -> None:
    path = tmp_path / "state"
    if "qwen" in said:
        StateFile.opened(str(path), "qwen").add([canary(9)], NOW)
    else:
        kept(path, (2, canary(9)), (1, canary(5)))
        path.write_bytes(spoil(path.read_bytes()))
    before = path.read_bytes()
    with pytest.raises(UnusableState, match=said):
        StateFile.opened(str(path), "glm")
    assert path.read_bytes() == before


def test_two_runs_at_once_do_not_write_over_each_other(tmp_path: Path) -> None:
    path = tmp_path / "state"
    first, second = StateFile.opened(str(path), "glm"), StateFile.opened(str(path), "glm")
    first.add([canary(9)], NOW)
    with pytest.raises(UnusableState, match="another run meanwhile"):
        second.add([canary(5)], NOW)
    assert len(StateFile.opened(str(path), "glm").results) == 1


def test_it_says_what_it_is_and_is_its_owners_alone(tmp_path: Path) -> None:
    path = tmp_path / "state"
    kept(path, (1, canary(9)))
    first = orjson.loads(path.read_bytes().splitlines()[0])
    assert (first["schema"], first["deployment"]) == (SCHEMA, "glm")
    assert "SHA-256" in first["says"]
    assert path.stat().st_mode & 0o077 == 0
    with pytest.raises(UnusableState, match="folder does not exist"):
        StateFile.opened(str(tmp_path / "none" / "state"), "glm")
