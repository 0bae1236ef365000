"""Health check of a web container: ``python -m kvaudit.ops.ready URL`` (slim images hold no curl)."""

from __future__ import annotations

import sys
import urllib.error
import urllib.request


def answers(url: str, timeout: float = 2.0) -> bool:
    """Whether a GET brings 200."""
    # Without the environment's proxies: the address is this machine.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=timeout) as response:
            return bool(response.status == 200)
    except (OSError, urllib.error.URLError):
        return False


def main(argv: list[str]) -> int:
    """0 when the URL answers 200, else 1."""
    if len(argv) == 1 and answers(argv[0], timeout=8.0):
        return 0
    print(f"{' '.join(argv)} does not answer 200")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
