"""The rows that `history.py` asks pages about: a fleet, and results of four hundred days, by COPY.

Every stage is a database of its own, copied from one that holds the fleet alone. All stages cover the same days and
hold the same changes of verdict: what grows from stage to stage is how often the fleet was audited, and so how many
results lie behind the same story. Were it the days that grew, a year's timeline would have four days to draw at the
smallest stage, and the comparison would be of drawings rather than of reading past a hundred times as many rows.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

DEPLOYMENTS = 500
NODES = 4
CHECKS = ("version", "pool", "drift", "exposure", "accounting", "rejection", "coherence", "canary")
PER_RUN = 4
ROUND = DEPLOYMENTS * len(CHECKS)
"""Results until every check of every deployment has one: two runs of each deployment."""

DAYS = 400
INTERVALS = 24
"""Times that each check of each deployment came to say something, at every stage: one in seventeen days."""

NEWEST = 20_000_000
"""The newest result has this id; older ones lie below."""

SUMMARIES = {
    "pass": "The pool of 2,040,000 tokens holds the context of 1,048,576 with the headroom, on every node given.",
    "fail": "Prompts of 681,274 to 1,048,569 tokens are accepted but do not fit the prefill pool of 681,280 tokens.",
    "inconclusive": "The pool is not exposed by decode-0: /server_info answers without a token capacity.",
    "error": "prefill-0 refused the connection, so nothing was read.",
}
WORST_FIRST = ("fail", "error", "inconclusive", "pass")
MEASURES = (
    '{"pool_tokens": 2040000, "context_tokens": 1048576, "reachable_tokens": 1048570, "headroom": 1.25, "danger_zone": '
    '%s, "full_context_requests": 1, "nodes": [{"node": "prefill-0", "role": "prefill", "pool": 2040000, "limit": '
    '1048570}, {"node": "decode-0", "role": "decode", "pool": 2040000, "limit": 1048570}]}'
)
EVIDENCE = (
    '[{"kind": "response", "sha256": "' + "0" * 64 + '", "source": "GET http://prefill-0:30000/server_info"}]'
)
BEFORE = "It says nothing about nodes that are not listed."

RUN_COLUMNS = (
    "id, kind, trigger, checks, slot, slots, state, verdict, warn, summary, fingerprint, tokens_spent, "
    "replayed_lengths, progress, not_before, expires_at, rings, attempt, created_at, started_at, finished_at, "
    "deployment_id, plan_id"
)
RESULT_COLUMNS = (
    "id, attempt, check_id, verdict, warn, severity, summary, measures, next_step, does_not_prove, evidence, "
    "observed_at, deployment_id, run_id"
)
STATE_COLUMNS = (
    "id, check_id, verdict, warn, severity, summary, since, last_confirmed, expires_at, expired_by, expiry_noted, "
    "closed_at, interval, fingerprint, deployment_id, run_id, result_id, zone_low, zone_high"
)
CHANGE_COLUMNS = "id, at, what, check_id, before, after, summary, detail, deployment_id, run_id"


def make_fleet() -> None:
    """Teams, deployments, nodes with snapshots, and a plan for all, known since before the first result."""
    from kvaudit.server.audits.models import Plan
    from kvaudit.server.fleet.models import Deployment, Node, NodeSnapshot
    from tests.factories import a_node, a_team, an_admin
    from tests.server.web import builders

    an_admin("admin")
    teams = [a_team(f"team-{number:02d}") for number in range(20)]
    made = []
    for number in range(DEPLOYMENTS):
        made.append(builders.a_pair(f"chat-{number:03d}", team=teams[number % len(teams)]))
        for extra in range(1, NODES - 1):
            builders.a_snapshot(a_node(made[-1], f"decode-{extra}", role="decode"))
    plan = Plan.objects.create(name="hourly", kind="passive", checks=list(CHECKS), interval=3_600)
    plan.deployments.set(made)
    long_ago = datetime.now(UTC) - timedelta(days=DAYS + 100)
    Deployment.objects.update(created_at=long_ago)
    Node.objects.update(valid_from=long_ago)
    NodeSnapshot.objects.update(first_seen=long_ago)
    Plan.objects.update(valid_from=long_ago, anchor=long_ago)


class Story:
    """What ``total`` results of the fleet say. Position 0 is the newest result; a check's age counts its own."""

    def __init__(self, total: int, newest: datetime) -> None:
        from kvaudit.server.audits.models import Plan
        from kvaudit.server.fleet.models import Deployment

        assert total % ROUND == 0, f"a stage is a multiple of {ROUND:,} results"
        self.total, self.newest = total, newest
        self.ages = total // ROUND
        assert self.ages >= INTERVALS
        self.deployments = list(Deployment.objects.order_by("pk").values_list("pk", flat=True))
        self.plan = Plan.objects.values_list("pk", flat=True).get(name="hourly")

    def at(self, position: int) -> str:
        """When the result was observed."""
        return (self.newest - timedelta(days=DAYS) * (position / self.total)).isoformat()

    def position(self, deployment: int, check: int, age: int) -> int:
        """A run holds half of the checks; a round of the fleet takes one run of each deployment."""
        half, place = divmod(check, PER_RUN)
        return ((2 * age + half) * DEPLOYMENTS + deployment) * PER_RUN + place

    def phase(self, deployment: int, check: int) -> int:
        """Checks do not all change on the same day."""
        return hash((check, deployment)) % (self.ages // INTERVALS)

    def verdict(self, deployment: int, check: int, age: int) -> str:
        """Of the interval in which the result lies."""
        return verdict_of(deployment, check, (age + self.phase(deployment, check)) * INTERVALS // self.ages)

    def runs(self) -> Iterator[str]:
        checks = ("{" + ",".join(CHECKS[:PER_RUN]) + "}", "{" + ",".join(CHECKS[PER_RUN:]) + "}")
        for number in range(self.total // PER_RUN - 1, -1, -1):
            round_, deployment = divmod(number, DEPLOYMENTS)
            age, half = divmod(round_, 2)
            said = {self.verdict(deployment, half * PER_RUN + place, age) for place in range(PER_RUN)}
            worst = next(each for each in WORST_FIRST if each in said)
            at = self.at(number * PER_RUN)
            trigger = "manual" if number % 2_503 == 0 else "schedule"
            yield (
                f"{NEWEST - number}\tpassive\t{trigger}\t{checks[half]}\t\\N\t1\tfinished\t{worst}\tf\t"
                f"4 of 4 checks concluded.\t{'ab' * 32}\t0\t{{}}\t{{}}\t{at}\t{at}\t0\t1\t{at}\t{at}\t{at}\t"
                f"{self.deployments[deployment]}\t{self.plan}\n"
            )

    def results(self) -> Iterator[str]:
        for position in range(self.total - 1, -1, -1):
            run, place = divmod(position, PER_RUN)
            round_, deployment = divmod(run, DEPLOYMENTS)
            age, half = divmod(round_, 2)
            check = half * PER_RUN + place
            said = self.verdict(deployment, check, age)
            yield (
                f"{NEWEST - position}\t1\t{CHECKS[check]}\t{said}\tf\t{severity(said)}\t{SUMMARIES[said]}\t"
                f"{measures(said)}\t\t{BEFORE}\t{EVIDENCE}\t{self.at(position)}\t{self.deployments[deployment]}\t"
                f"{NEWEST - run}\n"
            )

    def intervals(self) -> Iterator[tuple[int, int, int, str, int, int, int | None]]:
        """(deployment, check, number from the newest, verdict, first position, last position, first position of
        the next interval)."""
        for number in range(INTERVALS, -1, -1):
            for deployment, check in itertools.product(range(DEPLOYMENTS), range(len(CHECKS))):
                phase = self.phase(deployment, check)
                newest, older = (-(-n * self.ages // INTERVALS) - phase for n in (number, number + 1))
                newest, oldest = max(newest, 0), min(older, self.ages) - 1
                if newest > oldest:
                    continue
                first, last = (self.position(deployment, check, age) for age in (oldest, newest))
                following = self.position(deployment, check, newest - 1) if newest else None
                yield deployment, check, number, verdict_of(deployment, check, number), first, last, following

    def states(self) -> Iterator[str]:
        for deployment, check, number, said, first, last, following in self.intervals():
            closed = "\\N" if following is None else self.at(following)
            expires = (self.newest + timedelta(days=7)).isoformat() if following is None else closed
            key = NEWEST - number * ROUND - deployment * len(CHECKS) - check
            yield (
                f"{key}\t{CHECKS[check]}\t{said}\tf\t{severity(said)}\t{SUMMARIES[said]}\t{self.at(first)}\t"
                f"{self.at(last)}\t{expires}\t\tf\t{closed}\t3600\t{'ab' * 32}\t{self.deployments[deployment]}\t"
                f"{NEWEST - last // PER_RUN}\t{NEWEST - last}\t{zone(said)}\n"
            )

    def changes(self) -> Iterator[str]:
        for deployment, check, number, said, first, _, _ in self.intervals():
            oldest = first == self.position(deployment, check, self.ages - 1)
            was = "" if oldest else verdict_of(deployment, check, number + 1)
            key = NEWEST - number * ROUND - deployment * len(CHECKS) - check
            yield (
                f"{key}\t{self.at(first)}\tverdict\t{CHECKS[check]}\t{'expired' if was == said else was}\t{said}\t"
                f"{SUMMARIES[said]}\t{{}}\t{self.deployments[deployment]}\t{NEWEST - first // PER_RUN}\n"
            )


def verdict_of(deployment: int, check: int, interval: int) -> str:
    """Mostly pass. ``interval`` counts back from the newest."""
    draw = hash((deployment, check, interval)) % 1_000
    return "pass" if draw < 970 else "fail" if draw < 985 else "inconclusive" if draw < 995 else "error"


def severity(said: str) -> str:
    return "critical" if said == "fail" else ""


def measures(said: str) -> str:
    return MEASURES % ("[681274, 1048569]" if said == "fail" else "null")


def zone(said: str) -> str:
    """Of a state, as its results have measured it."""
    return "681274\t1048569" if said == "fail" else "\\N\t\\N"


def fill(total: int) -> None:
    """``total`` results, their runs, states and changes, into the database of the default connection."""
    from django.db import connection

    story = Story(total, datetime.now(UTC) - timedelta(minutes=5))
    connection.ensure_connection()
    with connection.cursor() as cursor:
        cursor.execute("SET session_replication_role = replica")  # foreign keys are right by construction
        _copy(cursor, "audits_run", RUN_COLUMNS, story.runs())
        _copy(cursor, "audits_result", RESULT_COLUMNS, story.results())
        _copy(cursor, "audits_checkstate", STATE_COLUMNS, story.states())
        _copy(cursor, "audits_statechange", CHANGE_COLUMNS, story.changes())
        cursor.execute("SET session_replication_role = DEFAULT")
        for table in ("audits_run", "audits_result", "audits_checkstate", "audits_statechange"):
            cursor.execute(f"SELECT setval(pg_get_serial_sequence('{table}', 'id'), {NEWEST + 1})")
        cursor.execute("VACUUM (ANALYZE)")


LEDGER_COLUMNS = "sequence, at, actor, kind, subject, digest, previous, hash"


def fill_ledger(total: int) -> None:
    """An entry for each run, after those of the fleet. Their chain is made up: nothing verifies it."""
    from django.db import connection

    from kvaudit.server.ledger.models import Entry

    newest = Entry.objects.order_by("-sequence").values_list("sequence", flat=True).first() or 0
    runs = total // PER_RUN
    if newest >= runs:
        return
    now = datetime.now(UTC).isoformat()
    lines = (
        f"{newest + 1 + number}\t{now}\tsystem:audits\trun.finished\trun:{NEWEST + 1 - runs + number}\t{'ab' * 32}\t"
        f"{number:064x}\t{number + 1:064x}\n"
        for number in range(runs)
    )
    with connection.cursor() as cursor:
        cursor.execute("SET session_replication_role = replica")
        _copy(cursor, "ledger_entry", LEDGER_COLUMNS, lines)
        cursor.execute("SET session_replication_role = DEFAULT")
        cursor.execute("VACUUM (ANALYZE) ledger_entry")


def _copy(cursor: Any, table: str, columns: str, lines: Iterator[str]) -> None:
    with cursor.copy(f"COPY {table} ({columns}) FROM STDIN") as copy:
        while part := "".join(itertools.islice(lines, 5_000)):
            copy.write(part)
