"""Measures as active checks leave them: an incident at the boundary, seen by `rejection` and `canary`."""

from __future__ import annotations

from typing import Any

N, C = 681_274, 1_048_576


def rung(name: str, tokens: int, trials: int = 1, status: int = 200, **counts: int) -> dict[str, Any]:
    keys = ("accepted", "refused", "without_nonce", "empty", "cut", "failed", "timed_out", "void")
    return {
        "name": name, "tokens": tokens, "trials": trials, "status": status, "prompt_tokens_reported": tokens,
        "first_token_seconds": 0.4, **dict.fromkeys(keys, 0), **counts,
    }  # fmt: skip


REJECTION = {
    "first_rejected_tokens": N,
    "context_tokens": C,
    "located_by_search": False,
    "rungs": [
        rung("N-1", N - 1, 3, accepted=3),
        rung("N-64", N - 64, accepted=1),
        rung("N-2", N - 2, accepted=1),
        rung("N", N, 3, without_nonce=2, refused=1),
        rung("N+1", N + 1, without_nonce=1),
        rung("N+page", N + 64, void=1, status=503),
        rung("midpoint", (N + C) // 2, 8, without_nonce=6, failed=1, void=1),
        rung("C-1", C - 1, refused=1, status=400),
        rung("C", C, refused=1, status=400),
        rung("C+1", C + 1, refused=1, status=400),
    ],
    "valid": 19,
    "void": 2,
}


def canary(rounds: int = 40) -> dict[str, Any]:
    lengths = {"victim": N - 1, "N": N, "N+1": N + 1, "midpoint": 864_925, "control": 512, "longest": N - 1}
    usual = {"N": "refused", "N+1": "refused", "midpoint": "without nonce"}
    rows = []
    for cell, tokens in lengths.items():
        words = [usual.get(cell, "answered")] * rounds
        words[5] = "busy"
        rows.append({"cell": cell, "tokens": tokens, "hits": 0, "rounds": words,
                     "outcomes": {word: words.count(word) for word in dict.fromkeys(words)}})  # fmt: skip
    rows[3]["hits"] = 2
    hits = [
        {"kind": "cross-tenant", "planted_by": "tenant-a", "read_by": "tenant-b", "words": "amber birch cedar delta",
         "run": 4, "tokens": 864_925, "cell": "midpoint", "round": at, "page_ordinals": [at, at + 1, 13_000 + at]}
        for at in (7, 19)
    ]  # fmt: skip
    return {"matrix": rows, "hits": hits, "planned_rounds": rounds, "accepted_rounds": rounds - 1}
