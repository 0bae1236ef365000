"""Health check of a web container: ``python -m kvaudit.server.ops.ready URL`` (slim images hold no curl)."""

from __future__ import annotations

import sys
import urllib.error
import urllib.request


def answers(url: str, timeout: float = 2.0) -> bool:
    """Whether a GET brings 200."""
    return not refusal(url, timeout)


def refusal(url: str, timeout: float = 2.0) -> str:
    """Empty when a GET brings 200, else what came instead."""
    # Without the environment's proxies: the address is this machine.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=timeout) as response:
            return "" if response.status == 200 else f"status {response.status}"
    except urllib.error.HTTPError as error:
        with error:
            return f"status {error.code}: {error.read(500).decode(errors='replace')}"
    except OSError as error:
        return f"no answer ({error})"


def main(argv: list[str]) -> int:
    """0 when the URL answers 200, else 1."""
    if len(argv) != 1:
        print("usage: python -m kvaudit.server.ops.ready URL")
        return 1
    refused = refusal(argv[0], timeout=8.0)
    if refused:
        print(refused)
    return 1 if refused else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
