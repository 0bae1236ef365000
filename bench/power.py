"""How often do the active checks find a leak, and what does a detection cost?

Seeded runs on the lab's virtual clock, each on a fresh engine, in memory. Run again, it goes on where
it stopped (``results/power.jsonl`` holds one line per run); the table is ``results/power.txt``.

    python bench/power.py --runs 100            # every row up to 100 runs
    python bench/power.py --rows canary-lifo --runs 20
    python bench/power.py --table               # only write the table
"""

from __future__ import annotations

import argparse
import asyncio
import json
import platform
import random
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from statistics import fmean, median
from typing import Any

from kvaudit.auditor import checks as registry
from kvaudit.auditor import runner
from kvaudit.auditor.checks.contract import Audit
from kvaudit.auditor.prober import NetworkProber, Permission, prober_for
from kvaudit.auditor.runner.reading import read_node
from kvaudit.auditor.stats.bounds import interval, upper_bound
from kvaudit.auditor.verdict import roll_up
from kvaudit.lab.clock import run_virtual
from kvaudit.lab.config import LabConfig, LabTenant
from kvaudit.lab.expectations import Expectation as Engine
from kvaudit.lab.inprocess import InProcess, in_process
from kvaudit.lab.matrix import target_of

RESULTS = Path(__file__).parent / "results"
RUNS, TABLE = RESULTS / "power.jsonl", RESULTS / "power.txt"
CUSTOMER = LabTenant("customer", "sk-lab-customer")
ENLARGED = {"prefill_pool": 16_384}
FIFO = {"order": "fifo"}
ACTIVE = ("rejection", "canary", "coherence", "accounting", "prefill")


@dataclass(frozen=True)
class Row:
    """``most`` limits the runs of a row that takes long; ``want`` is what must happen in how many of 100."""

    name: str
    what: str
    check: str  # a check, "runbook", or "all" for a roll-up
    faults: tuple[str, ...]
    want: str
    options: dict[str, Any] = field(default_factory=dict)
    foreign: bool = False
    most: int = 10_000
    tokens: int | None = None


ROWS = (
    Row("canary-lifo", "canary alone, others between, LIFO", "canary", ("stale_pages",), "fail", foreign=True),
    Row("canary-fifo", "canary alone, others between, FIFO", "canary", ("stale_pages",), "fail", FIFO, True),
    Row("rejection", "rejection", "rejection", ("stale_pages",), "fail", foreign=True),
    Row("coherence", "coherence", "coherence", ("stale_pages",), "fail", foreign=True),
    Row("prefill", "prefill", "prefill", ("stale_pages",), "fail", foreign=True),
    Row("snapshot", "canary on a restored snapshot", "canary", ("snapshot_restore",), "fail", ENLARGED, True),
    Row("tier", "prefix on a second tier without salts", "prefix", ("tier_salt_dropped",), "fail", ENLARGED),
    Row("mixed", "concurrency, lengths mixed up in a batch", "concurrency", ("mixed_len",), "fail", ENLARGED),
    Row("late-writer", "concurrency, a writer that comes late", "concurrency", ("late_writer",), "fail", ENLARGED),
    Row("lease", "concurrency, a lease that expires", "concurrency", ("lease_expiry",), "fail", ENLARGED),
    Row("crossed", "concurrency, crossed answers", "concurrency", ("crossed",), "fail", ENLARGED),
    Row("restored", "concurrency, a restored snapshot", "concurrency", ("snapshot_restore",), "fail", ENLARGED),
    Row("runbook-lifo", "the runbook's sample, same tokens, LIFO", "runbook", ("stale_pages",), "fail", foreign=True),
    Row("runbook-fifo", "the runbook's sample, same tokens, FIFO", "runbook", ("stale_pages",), "fail", FIFO, True),
    Row("false-rejection-healthy", "rejection, healthy", "rejection", ("healthy",), "not fail", ENLARGED, True),
    Row("false-rejection-fixed", "rejection, fixed_0_5_21", "rejection", ("fixed_0_5_21",), "not fail", foreign=True),
    Row("false-coherence-healthy", "coherence, healthy", "coherence", ("healthy",), "not fail", ENLARGED, True),
    Row("false-coherence-fixed", "coherence, fixed_0_5_21", "coherence", ("fixed_0_5_21",), "not fail", foreign=True),
    Row("false-accounting-fixed", "accounting, fixed_0_5_21", "accounting", ("fixed_0_5_21",), "not fail"),
    Row("false-canary-fixed", "canary, fixed_0_5_21", "canary", ("fixed_0_5_21",), "not fail", foreign=True),
    Row("false-canary-healthy", "canary, healthy", "canary", ("healthy",), "not fail", ENLARGED, True),
    Row("false-canary-alone", "canary, healthy, nobody else asks", "canary", ("healthy",), "not fail", ENLARGED),
    Row("false-concurrency-healthy", "concurrency, healthy", "concurrency", ("healthy",), "not fail", ENLARGED),
    Row("false-prefill-fixed", "prefill, fixed_0_5_21", "prefill", ("fixed_0_5_21",), "not fail", foreign=True),
    Row("rollup-flaky", "roll-up of all checks, flaky", "all", ("flaky",), "not pass", most=30),
    Row("rollup-hidden", "roll-up of all checks, hidden_pool", "all", ("hidden_pool",), "not pass", most=30),
    Row("rollup-dripping", "roll-up of all checks, dripping", "all", ("dripping",), "not pass", most=30),
)  # fmt: skip


@dataclass(frozen=True)
class Run:
    row: str
    seed: int
    verdict: str
    severity: str
    requests: int
    tokens: int
    virtual: float
    cpu: float


def others(lab: InProcess, seed: int) -> Callable[[], Any]:
    """Ordinary requests of another tenant: text of its own, 200 to 4,000 tokens, zero to three at a time."""
    noise = random.Random(seed)

    async def some() -> None:
        for _ in range(noise.randrange(4)):
            words = " ".join(
                f"invoice {noise.randrange(10**6)} of customer {noise.randrange(10**4)}" for _ in range(120)
            )
            body = {
                "model": lab.deployment.config.model,
                "prompt": words[: noise.randrange(200, 4_000)],
                "max_tokens": 16,
            }
            await lab.deployment.router.route(CUSTOMER.name, "/v1/completions", body)

    return some


class Traffic:
    """Between any two of our requests others are served."""

    ask = NetworkProber.ask
    some: Callable[[], Any] | None = None

    @classmethod
    async def between(cls, prober: NetworkProber, *args: Any, **more: Any) -> Any:
        if cls.some is not None:
            await cls.some()
        return await cls.ask(prober, *args, **more)


async def _ask(prober: NetworkProber, *args: Any, **more: Any) -> Any:
    return await Traffic.between(prober, *args, **more)


NetworkProber.ask = _ask  # type: ignore[method-assign]


async def one(row: Row, seed: int) -> Run:
    began, cpu = asyncio.get_running_loop().time(), time.process_time()
    config = LabConfig(**{**row.options, "seed": seed, "tenants": (*LabConfig().tenants,)})
    async with in_process(config, row.faults) as lab:
        with lab.joined():
            target = target_of(lab, Engine("power", row.faults))
            if row.check == "all":
                verdict, severity, requests, tokens = await together(target, seed)
            elif row.check == "runbook":
                verdict, severity, requests, tokens = await runbook(lab, target, row, seed)
            else:
                verdict, severity, requests, tokens = await single(lab, target, row, seed)
    took = asyncio.get_running_loop().time() - began
    return Run(
        row.name,
        seed,
        verdict,
        severity,
        requests,
        tokens,
        round(took, 2),
        round(time.process_time() - cpu, 2),
    )


async def single(lab: InProcess, target: Any, row: Row, seed: int) -> tuple[str, str, int, int]:
    nodes = [await read_node(node) for node in target.nodes]
    permission = Permission(consent=True, seed=seed, prompt_tokens=row.tokens)
    prober = await prober_for(target, nodes, permission)
    Traffic.some = staticmethod(others(lab, seed)) if row.foreign else None  # type: ignore[assignment]
    check = registry.get(row.check)
    audit = Audit("power", nodes, rules=target.rules, prober=prober)
    result = check.judge(await check.observe(audit), audit)
    Traffic.some = None
    await prober.aclose()
    return result.verdict.value, result.severity, prober.spent.requests, prober.spent.prompt_tokens


async def together(target: Any, seed: int) -> tuple[str, str, int, int]:
    results = []
    run = runner.run(
        target,
        [*registry.PASSIVE[:2], *ACTIVE],
        budget=runner.Budget(seconds=7_200.0),
        permission=Permission(consent=True, seed=seed),
    )
    async for event in run:
        if isinstance(event, runner.CheckFinished):
            results.append(event.result)
    return roll_up([one.verdict for one in results]).value, "", 0, 0


async def runbook(lab: InProcess, target: Any, row: Row, seed: int) -> tuple[str, str, int, int]:
    """The runbook's own check, as its incident section describes it, with one thing mended in its favour:
    its filler is cut to exactly n tokens, so that it does meet the boundary. One sentinel and filler, then the
    filler alone with the same key, 16 tokens each; the sentinel must not be in the second body. Lengths: the
    longest accepted, the boundary, boundary + 1. Repeated until it has spent what our canary may."""
    nodes = [await read_node(node) for node in target.nodes]
    prober = await prober_for(target, nodes, Permission(consent=True, seed=seed))
    n = prober.limits.first_rejected or 0
    await prober.aclose()
    noise, between = random.Random(seed), others(lab, seed)
    spent, requests, budget = 0, 0, median_tokens(row)
    while spent < budget:
        for length in (n - 1 - 16, n, n + 1):
            sentinel = f"CANARY-{uuid.UUID(int=noise.getrandbits(128), version=4)}"
            filler = "lorem ipsum " * (length // 12 + 2)
            for start in (f"{sentinel} ", "Summarize this: "):
                await between()
                prompt = (start + filler)[:length]
                body = {"model": target.model, "prompt": prompt, "max_tokens": 16, "temperature": 0}
                said = await said_by(lab, target, body)
                requests += 1
                spent += length
                if start.startswith("Summarize") and sentinel in said:
                    return "fail", "", requests, spent
    return "pass", "", requests, spent


async def said_by(lab: InProcess, target: Any, body: dict[str, Any]) -> str:
    client = lab.client(lab.entry, allow=[("POST", "/v1/completions")], key=lab.keys[0])
    answer = await client.request("POST", "/v1/completions", content=json.dumps(body).encode())
    return answer.body.decode(errors="replace")


def median_tokens(row: Row) -> int:
    """What our own canary spent in the median of its runs under the same order, at least a full round."""
    ours = row.name.replace("runbook", "canary")
    spent = sorted(run.tokens for run in known() if run.row == ours)
    return max(spent[len(spent) // 2] if spent else 0, 60_000)


def known() -> list[Run]:
    if not RUNS.exists():
        return []
    return [Run(**json.loads(line)) for line in RUNS.read_text().splitlines() if line.strip()]


def work(rows: list[Row], runs: int) -> Iterator[Run]:
    done = {(run.row, run.seed) for run in known()}
    for row in rows:
        for seed in range(1, min(runs, row.most) + 1):
            if (row.name, seed) not in done:
                yield run_virtual(one(row, seed))


def table(runs: list[Run]) -> str:
    lines = [
        "Power of the active checks, on the lab in memory (virtual clock)",
        f"written {datetime.now(UTC):%Y-%m-%d %H:%M} UTC, kvaudit {metadata.version('kvaudit')}, "
        f"Python {platform.python_version()}, {platform.machine()}",
        "Counts are of the runs that were made; the interval is Clopper-Pearson, 95 %.",
        "",
        f"{'row':<50} {'wanted':<9} {'happened':>10}  {'95 % interval':<17} {'tokens':>9} {'requests':>8} {'CPU s':>6} "
        " verdicts",
    ]
    for row in ROWS:
        mine = [run for run in runs if run.row == row.name]
        if not mine:
            lines.append(f"{row.what:<50} {row.want:<9} {'not run':>10}")
            continue
        found = ", ".join(
            f"{count} {verdict}" for verdict, count in Counter(run.verdict for run in mine).items()
        )
        good = sum(happened(run.verdict, row.want) for run in mine)
        low, high = interval(good, len(mine))
        tokens, requests = median(run.tokens for run in mine), median(run.requests for run in mine)
        lines.append(
            f"{row.what:<50} {row.want:<9} {good:>4} of {len(mine):>3}  {low:6.1%} to {high:6.1%}  {tokens:>9,.0f} "
            f"{requests:>8.0f} {fmean(run.cpu for run in mine):>6.1f}  {found}"
        )
    lines += ["", *compared(runs), *false_alarms(runs)]
    return "\n".join(lines) + "\n"


def happened(verdict: str, want: str) -> bool:
    return verdict != want.removeprefix("not ") if want.startswith("not ") else verdict == want


def compared(runs: list[Run]) -> list[str]:
    """Ours against the runbook's sample, with the same tokens."""
    lines = []
    for order in ("lifo", "fifo"):
        ours = [run for run in runs if run.row == f"canary-{order}"]
        theirs = [run for run in runs if run.row == f"runbook-{order}"]
        if ours and theirs:
            found, sample = (sum(run.verdict == "fail" for run in group) for group in (ours, theirs))
            most = upper_bound(sample, len(theirs))
            least = interval(found, len(ours))[0] / most if most else float("inf")
            ratio = f"{found / len(ours) / (sample / len(theirs)):.1f}" if sample else "no finite ratio"
            lines.append(
                f"{order.upper()}: canary {found} of {len(ours)}, the runbook's sample {sample} of {len(theirs)} with "
                f"as many tokens ({sum(run.tokens for run in theirs) // len(theirs):,} against "
                f"{sum(run.tokens for run in ours) // len(ours):,}): ratio {ratio}, at least {least:.1f} (95 %)."
            )
    return lines


def false_alarms(runs: list[Run]) -> list[str]:
    clean = [run for run in runs if run.row.startswith("false-")]
    wrong = sum(run.verdict == "fail" for run in clean)
    if not clean:
        return []
    return [
        f"False alarms on healthy and fixed_0_5_21: {wrong} of {len(clean)} runs "
        f"(below {upper_bound(wrong, len(clean)):.2%}, 95 %)."
    ]


def main() -> int:
    asked = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    asked.add_argument("--runs", type=int, default=100, help="seeded runs per row")
    asked.add_argument("--rows", nargs="*", default=[], help=f"of {', '.join(row.name for row in ROWS)}")
    asked.add_argument("--seconds", type=float, default=float("inf"), help="stop after this much time")
    asked.add_argument("--table", action="store_true", help="only write the table")
    given = asked.parse_args()
    RESULTS.mkdir(exist_ok=True)
    until = time.monotonic() + given.seconds
    if not given.table:
        rows = [row for row in ROWS if row.name in given.rows or not given.rows]
        with RUNS.open("a") as kept:
            for run in work(rows, given.runs):
                kept.write(json.dumps(asdict(run)) + "\n")
                kept.flush()
                print(
                    f"{run.row:<26} seed {run.seed:>3} {run.verdict} {run.tokens:,} tokens, CPU {run.cpu} s",
                    flush=True,
                )
                if time.monotonic() > until:
                    break
    TABLE.write_text(table(known()))
    print(TABLE.read_text())
    return 0


if __name__ == "__main__":
    sys.exit(main())
