"""Processor time of every parser that reads what an audited server (or a file from a browser) says, per megabyte.

    .venv/bin/python bench/parsers.py [--bytes 1000000]

The inputs are made to cost time (`tests.costly`). What a server answers should take about 50 ms per MB; what takes
more is bounded by a cap or given up with a sentence, which the last column shows. That time grows with the length
and not with its square is a test (`tests/test_parsers_time.py`).
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.costly import cases, outcome  # noqa: E402


def main() -> int:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--bytes", type=int, default=1_000_000)
    size = arguments.parse_args().bytes
    print(f"{'parser':<20} {'input':<40} {'ms per MB':>10}  ended")
    for case in cases():
        body = case.body(size)
        best = float("inf")
        for _ in range(3):
            began = time.process_time()
            said = outcome(case, body)
            best = min(best, time.process_time() - began)
        shown = case.name.removeprefix(case.parser).strip()
        print(f"{case.parser:<20} {shown:<40} {best * 1e9 / len(body):>10.1f}  {said[:60]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
