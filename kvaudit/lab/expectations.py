"""Lists what each check must find on each faulty engine: the declarative half of the matrix. What a row is:
`kvaudit.lab.expectation`."""

from __future__ import annotations

from kvaudit.auditor.checks import ACTIVE, MODULES, PASSIVE
from kvaudit.lab.expectation import COMPACT, COMPACT_SMALL, ENLARGED, NOT_APPLICABLE, SMALL, Expectation
from kvaudit.lab.expectations_oddities import ODDITIES
from kvaudit.lab.expectations_unplanned import UNPLANNED

__all__ = ["ENLARGED", "NOT_APPLICABLE", "ODDITIES", "ROWS", "SMALL", "Expectation"]

# A node that cannot be read is an error of every reading; the active checks have no limit to go by and do not ask.
UNREADABLE = dict.fromkeys(PASSIVE, "error") | dict.fromkeys(ACTIVE, "inconclusive")
# Nothing can be said to fill, or to have come near, a pool whose size nobody tells.
UNKNOWN_POOL = dict.fromkeys(("pool", "canary", "coherence", "prefill", "concurrency"), "inconclusive")
_AT_THE_LIMIT = ("rejection", "canary", "coherence", "prefill")
_REJECTED_RIGHT = {"pool": "fail"}  # a small pool fails the pool check whatever happens at the boundary

_INCIDENT = dict.fromkeys(("pool", "version", *_AT_THE_LIMIT), "fail")
# concurrency stays below N - 8, where nothing is rejected: load alone does not show the incident

ROWS: tuple[Expectation, ...] = (
    Expectation("healthy", ("healthy",)),
    Expectation("none", ("none",), _REJECTED_RIGHT, SMALL),
    Expectation("unified", ("healthy",), {}, {"unified": True, "prefill_pool": 16_384}),
    # vLLM completes on /invocations without asking for the key that /v1 wants (vllm#58144), and whether
    # a NIXL lease can expire must be declared
    Expectation(
        "vllm",
        ("healthy",),
        {"exposure": "fail", "version": "inconclusive"},
        {"flavour": "vllm", "prefill_pool": 16_384},
    ),
    Expectation("stale_pages", ("stale_pages",), _INCIDENT, SMALL),
    # the free list that SGLang's prefill and decode roles really have
    Expectation(
        "stale_pages_sglang_pd", ("stale_pages",), _INCIDENT, {**COMPACT_SMALL, "order": "sglang-pd"}
    ),
    Expectation(
        "fixed_0_5_20",
        ("fixed_0_5_20",),
        {"pool": "fail", "version": "fail", "rejection": "fail"},
        COMPACT_SMALL,
    ),
    Expectation("fixed_0_5_21", ("fixed_0_5_21",), {"pool": "fail", "version": "fail"}, COMPACT_SMALL),
    Expectation(
        "short_transfer",
        ("short_transfer",),
        {
            # the question's own state survives the handoff, so a copier answers it with the stranger's
            # word and goes on asking: rejection and coherence see that, the canary's frames seldom, but a
            # third of its answers lack their own nonce and so it never passes
            "rejection": "fail|inconclusive",
            "canary": "fail|inconclusive",
            "coherence": "fail|inconclusive",
            "prefill": "fail|inconclusive",
            "concurrency": "fail",
            "accounting": "pass|fail|inconclusive",
            "prefix": "pass|fail|inconclusive",
        },
    ),
    Expectation("late_writer", ("late_writer",), {"concurrency": "fail"}),
    Expectation("lease_expiry", ("lease_expiry",), {"concurrency": "fail"}),
    Expectation("crossed", ("crossed",), {"concurrency": "fail"}),
    Expectation("mixed_len", ("mixed_len",), {"concurrency": "fail"}),
    Expectation(
        "snapshot_restore",
        ("snapshot_restore",),
        {
            # a restored stranger answers in one's place, or only one's own facts are gone: the draw decides
            "rejection": "fail|inconclusive",
            "canary": "fail",
            "coherence": "fail|inconclusive",
            "prefill": "fail|inconclusive",
            "concurrency": "fail",
            "accounting": "pass|fail|inconclusive",
            "prefix": "pass|fail|inconclusive",
        },
    ),
    Expectation(
        "phantom_cache",
        ("phantom_cache",),
        {"accounting": "fail", "prefix": "fail"},
        COMPACT,
    ),
    Expectation("shared_prefix", ("shared_prefix",), {"prefix": "fail"}, COMPACT),
    Expectation("salt_ignored", ("salt_ignored",), {"prefix": "fail"}, COMPACT),
    # the prefill pool, where the cache is, must be the smaller one: fillers are counted against the smallest
    Expectation(
        "tier_salt_dropped", ("tier_salt_dropped",), {"prefix": "fail"}, {**COMPACT, "prefill_pool": 5_248}
    ),
    Expectation(
        "quality_drift",
        ("quality_drift",),
        {
            # fresh, the engine still answers: the ladder may end before values are worn
            "rejection": "pass|fail|inconclusive",
            "coherence": "fail|inconclusive",
            "canary": "inconclusive",
            "prefill": "inconclusive",
            # counts are right; what a worn model babbles may be anybody's words
            "accounting": "pass|inconclusive",
            # unequal arms may lose their nonces no more often than the controls, which are worn too
            "concurrency": "fail|inconclusive",
        },
    ),
    Expectation(
        "status_200_length", ("status_200_length",), {"pool": "fail", "rejection": "fail"}, COMPACT_SMALL
    ),
    Expectation("empty_200", ("empty_200",), {"pool": "fail", "rejection": "fail"}, COMPACT_SMALL),
    Expectation(
        "reject_500",
        ("reject_500",),
        {
            # server errors are void trials: no refusal was seen, and no leak either
            "pool": "fail",
            "rejection": "inconclusive",
        },
        COMPACT_SMALL,
    ),
    Expectation("sse_error_in_200", ("sse_error_in_200",), _REJECTED_RIGHT, COMPACT_SMALL),
    Expectation(
        "pool_stranded", ("pool_stranded",), {"pool": "fail", "rejection": "inconclusive"}, COMPACT_SMALL
    ),
    Expectation(
        "wedge_at_limit",
        ("wedge_at_limit",),
        {
            "pool": "fail",
            "rejection": "fail",
            "canary": "fail",
            "coherence": "fail",
            "prefill": "fail",
            # concurrency stays below N - 8 and never meets the limit
        },
        COMPACT_SMALL,
    ),
    # concurrency and accounting stay below the length that wedges
    Expectation("wedge", ("wedge",), {"pool": "fail"} | dict.fromkeys(_AT_THE_LIMIT, "fail"), COMPACT_SMALL),
    # it wedges 256 tokens below the pool, and load and fillers must stay below that: not at half the size
    Expectation(
        "wedge_decode",
        ("wedge_decode",),
        {"pool": "fail", "prefix": "pass|fail"} | dict.fromkeys(_AT_THE_LIMIT, "fail"),
        SMALL,
    ),
    # silent for two minutes and then right: slow, with a warning, and nothing worse
    Expectation("wedge_for_minutes", ("wedge_for_minutes",), _REJECTED_RIGHT, COMPACT_SMALL),
    Expectation(
        "auto_truncate",
        ("auto_truncate",),
        {
            "pool": "fail",
            "rejection": "fail",
            # decode reads pages that never came: whether a stranger's facts stand in them depends on the draw
            "canary": "fail|inconclusive",
            "coherence": "fail|inconclusive",
            "prefill": "fail|inconclusive",
        },
        COMPACT_SMALL,
    ),
    Expectation("gateway_cache", ("gateway_cache",), {"prefix": "fail"}, COMPACT),
    # four of ten answers fail, the draw decides which: any check may end in any way, only never all in pass
    Expectation(
        "flaky", ("flaky",), dict.fromkeys(MODULES, "fail|inconclusive|error|pass"), roll_up="not pass"
    ),
    Expectation("dripping", ("dripping",), UNREADABLE, roll_up="not pass"),
    Expectation("bomb", ("bomb",), UNREADABLE, roll_up="not pass"),
    Expectation("redirect", ("redirect",), UNREADABLE, roll_up="not pass"),
    Expectation(
        "hidden_pool",
        ("hidden_pool",),
        UNKNOWN_POOL,
        COMPACT,
        roll_up="not pass",
    ),
    Expectation(
        "zero_gauges",
        ("zero_gauges",),
        UNKNOWN_POOL,
        COMPACT,
        roll_up="not pass",
    ),
    Expectation(
        "nightly_version", ("nightly_version",), {"version": "inconclusive"}, COMPACT, roll_up="not pass"
    ),
    Expectation("unauthenticated", ("unauthenticated",), {"exposure": "fail"}, COMPACT),
    Expectation("keys_in_server_info", ("keys_in_server_info",), {"exposure": "fail"}, COMPACT),
    Expectation(
        "capacity_change",
        ("capacity_change",),
        # every 50 requests the node comes back another: a check that is at work then cannot conclude
        {"drift": "fail"} | dict.fromkeys(ACTIVE, "pass|inconclusive"),
        requests_between=60,
    ),
    *UNPLANNED,
    *ODDITIES,
)
