"""Wall time of ``kvaudit gate`` beside bare scripts that do the same reads and judge nothing.

    .venv/bin/python bench/gate.py [--runs 15]

Interleaved runs of whole processes against one loopback server that replays an SGLang node; medians
and ratios. The promise: at most 1.5 x the bare httpx script. The standard-library script shows the
floor. The httpx script is timed twice: as it is on a machine with httpx's command line installed
(rich, click, pygments are imported with it) and without, as in a slim image.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests import servers  # noqa: E402

PROMISE = 1.5

BARE_HTTPX = """
import asyncio, sys
{prelude}
import httpx
async def main(base, paths):
    async with httpx.AsyncClient(trust_env=False, verify={verify}) as client:
        for path in paths:
            answer = await client.get(base + path)
            if answer.status_code == 200 and "json" in answer.headers.get("content-type", ""):
                answer.json()
asyncio.run(main(sys.argv[1], sys.argv[2:]))
"""

BARE_STDLIB = """
import http.client, json, sys
host = sys.argv[1].removeprefix("http://")
connection = http.client.HTTPConnection(host, timeout=10)
for path in sys.argv[2:]:
    connection.request("GET", path)
    answer = connection.getresponse()
    body = answer.read()
    if answer.status == 200 and "json" in (answer.getheader("content-type") or ""):
        json.loads(body)
"""

SLIM = "for name in ('rich', 'click', 'pygments'): sys.modules[name] = None"


def scripts(url: str, paths: list[str]) -> dict[str, list[str]]:
    """The competitors, as command lines."""
    python = sys.executable
    return {
        "kvaudit gate": [python, "-m", "kvaudit.cli", "gate", "--node", url, "--json"],
        "bare httpx": [python, "-c", BARE_HTTPX.format(prelude="", verify="True"), url, *paths],
        "bare httpx, slim image": [python, "-c", BARE_HTTPX.format(prelude=SLIM, verify="True"), url, *paths],
        "bare httpx, slim, no TLS": [
            python,
            "-c",
            BARE_HTTPX.format(prelude=SLIM, verify="False"),
            url,
            *paths,
        ],
        "bare stdlib": [python, "-c", BARE_STDLIB, url, *paths],
        "python -c pass": [python, "-c", "pass"],
    }


def timed(command: list[str]) -> float:
    began = time.perf_counter()
    done = subprocess.run(command, capture_output=True, cwd=ROOT, check=False)
    took = time.perf_counter() - began
    if done.returncode not in (0, 1, 2):
        raise SystemExit(f"{command[:3]} ended with {done.returncode}: {done.stderr.decode()[-2000:]}")
    return took


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=15)
    given = parser.parse_args()
    node = servers.sglang_node(servers.payload("sglang/server_info-prefill-0.5.19.json"))
    with servers.background(node) as server:
        timed([sys.executable, "-m", "kvaudit.cli", "gate", "--node", server.url])
        # What one reading asks: that the gate asks again over fresh connections is at its own expense.
        paths = list(dict.fromkeys(request.path for request in server.requests))
        commands = scripts(server.url, paths)
        for command in commands.values():
            timed(command)  # warm the page cache and the .pyc files
        taken: dict[str, list[float]] = {name: [] for name in commands}
        for _ in range(given.runs):
            for name, command in commands.items():
                taken[name].append(timed(command))
    medians = {name: statistics.median(times) for name, times in taken.items()}
    gate = medians["kvaudit gate"]
    print(f"{len(paths)} reads: {' '.join(paths)}")
    for name, median in medians.items():
        spread = f"{min(taken[name]):.3f}..{max(taken[name]):.3f}"
        print(f"{name:26} {median:.3f} s  ({spread})   gate / this = {gate / median:.2f}")
    ratio = gate / medians["bare httpx"]
    slim = gate / medians["bare httpx, slim, no TLS"]
    print(
        json.dumps(
            {"gate_s": round(gate, 4), "ratio_httpx": round(ratio, 3), "ratio_httpx_slim": round(slim, 3)}
        )
    )
    print(f"promise: at most {PROMISE} x bare httpx: {'kept' if ratio <= PROMISE else 'BROKEN'}")
    return 0 if ratio <= PROMISE else 1


if __name__ == "__main__":
    sys.exit(main())
