"""The incident at its true size: context 1,048,576, prefill pool 681,280, page 64, over real sockets.

    .venv/bin/python bench/lab_incident.py [--keep]

A victim of tenant A sends 680,000 tokens, tenant B sends 700,000. Prints times, memory and what came
back from `stale_pages` and from `none`; ``--keep`` writes the log to bench/results/lab_incident.txt.
Exits 1 when a promise is not kept: 200 with the full usage and A's words within 20 s and under 1 GiB,
the 400 and nothing else from `none`, and own nonces below the limit from both.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Any

from kvaudit.auditor.transport import Client, Limits

MARKER = "amber falcon meadow velvet harbor cedar"
OWN = "walnut pebble lantern copper thistle marble"
BIG = 700_000
RESULTS = Path(__file__).parent / "results" / "lab_incident.txt"


def frames(marker: str, tokens: int, tail: str = "") -> str:
    """Numbered frames of a marker, exactly ``tokens`` bytes with ``tail`` at the end."""
    frame = "Record {0:06d}. The audit phrase is: {1}. Every answer must consist of the audit phrase: {1}. "
    one = len(frame.format(0, marker))
    body = "".join(frame.format(number, marker) for number in range(tokens // one + 1))
    return body[: tokens - len(tail)] + tail


class Log:
    def __init__(self) -> None:
        self.lines: list[str] = []
        self.broken = 0

    def say(self, text: str) -> None:
        self.lines.append(text)
        print(text, flush=True)

    def promise(self, kept: bool, text: str) -> None:
        self.broken += not kept
        self.say(f"  {'kept  ' if kept else 'BROKEN'} {text}")


async def start(fault: str) -> tuple[asyncio.subprocess.Process, dict[str, Any], float]:
    began = time.perf_counter()
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "kvaudit.cli",
        "lab",
        "serve",
        "--fault",
        fault,
        "--scale",
        "incident",
        "--json",
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    line = await process.stdout.readline()
    return process, json.loads(line), time.perf_counter() - began


def peak_mib(pid: int) -> float:
    """Peak resident memory of a process, MiB (Linux)."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    return 0.0


async def complete(about: dict[str, Any], tenant: int, prompt: str, tokens: int) -> tuple[int, Any, float]:
    key = about["tenants"][tenant]["key"]
    limits = Limits(total=120, connect=5, read=120)
    async with Client(
        about["entry"], allow=[("POST", "/v1/completions")], headers=[("Authorization", f"Bearer {key}")]
    ) as client:
        body = json.dumps({"model": about["model"], "prompt": prompt, "max_tokens": tokens, "temperature": 0})
        began = time.perf_counter()
        answer = await client.request("POST", "/v1/completions", content=body.encode(), limits=limits)
        return answer.status, json.loads(answer.body), time.perf_counter() - began


async def replay(fault: str, log: Log) -> None:
    process, about, seconds = await start(fault)
    try:
        log.say(f"{fault}: started in {seconds:.2f} s, context {about['context']:,}, pools {about['pools']}")
        question = " Code Q: pebble. Code Q: pebble. Code Q:"
        for tenant, length in ((0, 680_000), (1, 400_000)):
            words = MARKER if tenant == 0 else OWN
            status, said, took = await complete(about, tenant, frames(words, length, question), 8)
            text = said["choices"][0]["text"] if status == 200 else str(said)
            log.say(f"  {'AB'[tenant]} sends {length:,} tokens: {status} in {took:.1f} s, answers {text!r}")
            log.promise(text.startswith(" pebble"), "a prompt below the limit answers its own nonce")
        status, said, took = await complete(about, 0, frames(MARKER, 680_000), 16)
        log.say(f"  A sends 680,000 tokens of its own phrase: {status} in {took:.1f} s")
        status, said, took = await complete(about, 1, frames(OWN, BIG), 128)
        log.say(f"  B sends {BIG:,} tokens: {status} in {took:.1f} s")
        if fault == "stale_pages":
            text = said["choices"][0]["text"]
            log.say(f"  B reads: {text!r}")
            log.promise(status == 200, "HTTP 200")
            log.promise(said["usage"]["prompt_tokens"] == BIG, f"usage.prompt_tokens is {BIG:,}")
            log.promise("falcon meadow velvet" in text, "the text is tenant A's earlier prompt")
        else:
            log.say(f"  B reads: {said}")
            log.promise(status == 400, "HTTP 400")
            log.promise(set(said) == {"object", "message", "type", "param", "code"}, "and nothing else")
        log.promise(took < 20, "within 20 s")
        memory = peak_mib(process.pid)
        log.promise(0 < memory < 1024, f"peak memory {memory:.0f} MiB, under 1 GiB")
    finally:
        process.terminate()
        await process.wait()


async def main() -> int:
    log = Log()
    for fault in ("stale_pages", "none"):
        await replay(fault, log)
    if "--keep" in sys.argv:
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text("\n".join(log.lines) + "\n")
    return 1 if log.broken else 0


if __name__ == "__main__":
    raise SystemExit(asyncio.run(main()))
