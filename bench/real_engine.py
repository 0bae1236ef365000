"""Whether the canary finds another tenant's text on a real engine whose prompts a proxy swaps.

    .venv/bin/python bench/real_engine.py http://127.0.0.1:18010 smollm2 [--runs 13] [--at-once 3] [--before TREE]

Before the engine, which nobody here wrote and no fault was built into, stands `_swapped_proxy`: from the second
tenant on it replaces pages of each long prompt by those of the other tenant's last one, and the model answers what it
read. Four ways to replace, of the completions' prompts alone and of the chat's alone, so that a run that asks only
one of them cannot find the other. ``healthy`` goes through the same proxy unswapped. Keys of the engine:
sk-tenant-a and sk-tenant-b.

One process of 2 cores answers 320 prompt tokens a second, so the positive controls before the rounds, short prompts
that the proxy leaves alone, are few (``CONTROLS``); they find nothing and only bound what a clean run may say. Every
run is a line of ``bench/results/real_engine.jsonl``; runs that are there for this commit are not repeated.
``--before`` runs the release of that tree, with the same ceiling of tokens.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
KEPT = ROOT / "bench" / "results" / "real_engine.jsonl"
HOW = ("all", "half", "all but the last page", "middle")
ROUTES = ("/v1/completions", "/chat/completions")
CONTROLS = 2
BUDGET = 40_000
DEADLINE = 3_000
TENANTS = {"A": "sk-tenant-a", "B": "sk-tenant-b"}

RUN = f"""
import sys
try:
    from kvaudit.auditor.checks.canary import sender
    sender.CONTROLS_EACH = {CONTROLS}
    from kvaudit.auditor.checks.canary import probe
    probe.CONTROLS_EACH = {CONTROLS}
except ImportError:
    pass
from kvaudit.cli import main
sys.exit(main(sys.argv[1:]))
"""

Case = tuple[str, str, str, int]


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def commit(tree: Path) -> str:
    told = subprocess.run(["git", "-C", tree, "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    return told.stdout.strip()


def done() -> set[tuple[Any, ...]]:
    if not KEPT.exists():
        return set()
    lines = map(json.loads, KEPT.read_text().splitlines())
    return {(one["engine"], one["commit"], one["how"], one["route"], one["seed"]) for one in lines}


async def probe(tree: Path, engine: str, model: str, how: str, route: str, seed: int) -> dict[str, Any]:
    port = free_port()
    proxy = await asyncio.create_subprocess_exec(
        sys.executable, str(ROOT / "bench" / "_swapped_proxy.py"), str(port), engine, how, route
    )
    begun = time.monotonic()
    try:
        await _listens(port)
        run = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", RUN, "probe", "canary", "--json", "--model", model),
            *("--node", engine, "--entry", f"http://127.0.0.1:{port}", "--api-key-env", "A"),
            *("--tenant-a-key-env", "A", "--tenant-b-key-env", "B", "--allow-boundary"),
            *("--budget", str(BUDGET), "--timeout", str(DEADLINE), "--seed", str(seed)),
            env={**os.environ, **TENANTS, "PYTHONPATH": str(tree)},
            stdout=subprocess.PIPE,
        )
        said, _ = await run.communicate()
    finally:
        proxy.terminate()
        await proxy.wait()
    result = json.loads(said)["results"][0]
    measures = result["measures"]
    if result["verdict"] != "fail" and not measures.get("accepted"):
        raise SystemExit(f"The engine answered nothing: {result['summary']}")
    return {
        "verdict": result["verdict"],
        "severity": result.get("severity", ""),
        "summary": result["summary"],
        "rounds": measures.get("planned_rounds"),
        "accepted": measures.get("accepted"),
        "routes": sorted({str(hit.get("route", "")) for hit in measures.get("hits", [])}),
        "seconds": round(time.monotonic() - begun),
    }


async def _listens(port: int) -> None:
    while True:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.close()
            return
        except OSError:
            await asyncio.sleep(0.2)


async def worker(cases: Iterator[Case], tree: Path, engine: str, model: str) -> None:
    for name, how, route, seed in cases:
        found = await probe(tree, engine, model, how, route, seed)
        line = {"engine": model, "commit": name, "how": how, "route": route, "seed": seed, **found}
        with KEPT.open("a") as file:
            file.write(json.dumps(line) + "\n")
        print(f"{how:22} {route:18} {seed:3} {found['verdict']:13} {found['seconds']:5} s", flush=True)


def table() -> str:
    """Found of all, for each release, way and route."""
    counted: dict[tuple[str, ...], list[bool]] = {}
    for one in map(json.loads, KEPT.read_text().splitlines()):
        found = one["verdict"] == "fail" and one["severity"] == "critical"
        counted.setdefault((one["engine"], one["commit"], one["how"], one["route"]), []).append(found)
    return "\n".join(f"{' | '.join(key):70} found {sum(of)} of {len(of)}" for key, of in counted.items())


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("engine")
    parser.add_argument("model")
    parser.add_argument("--runs", type=int, default=13)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--at-once", type=int, default=3)
    parser.add_argument("--how", nargs="*", default=HOW)
    parser.add_argument("--routes", nargs="*", default=ROUTES)
    parser.add_argument("--before", type=Path, help="a tree of the release before")
    given = parser.parse_args()
    tree = (given.before or ROOT).resolve()
    name, kept = commit(tree), done()
    cases = (
        (name, how, route, seed)
        for seed in range(given.first, given.first + given.runs)
        for how in given.how
        for route in given.routes
        if (given.model, name, how, route, seed) not in kept
    )
    await asyncio.gather(*(worker(cases, tree, given.engine, given.model) for _ in range(given.at_once)))
    print(table())


if __name__ == "__main__":
    asyncio.run(main())
