"""Rows of leaks and hidden errors that no check plants or plans for: whose text is this, and by which way did it
come. What they expect is what truth demands, not what is easily seen."""

from __future__ import annotations

from kvaudit.auditor.checks import ACTIVE
from kvaudit.lab.expectation import COMPACT, Expectation

SEEN = "fail|inconclusive"
"""Must not pass: whether it is proven or only not excluded hangs on the draw."""

MAY = "pass|fail|inconclusive"
"""Does not look for this; what it meets by chance may show."""

ANYWHERE = dict.fromkeys(ACTIVE, MAY)

UNPLANNED = (
    Expectation(
        "hit_garbles",
        ("hit_garbles",),
        {"prefix": "fail", "concurrency": SEEN},
        COMPACT,
    ),
    Expectation(
        "tier_garbles",
        ("tier_garbles",),
        {"prefix": "fail", "concurrency": "fail"},
        COMPACT,
    ),
    Expectation(
        "tier_swaps",
        ("tier_swaps",),
        {"prefix": "fail", "concurrency": "fail"},
        COMPACT,
    ),
    Expectation("unwritten_hash", ("unwritten_hash",), {"concurrency": "fail"}, COMPACT),
    Expectation(
        "third_tenant",
        ("third_tenant",),
        {"prefix": "fail"},
        COMPACT,
    ),
    Expectation(
        "response_cache",
        ("response_cache",),
        {"prefix": "fail"},
        COMPACT,
    ),
    # beginning and end are the prompt's own, so whoever asks for what stands there alone is answered right
    Expectation(
        "middle_pages",
        ("middle_pages",),
        ANYWHERE | {"canary": "fail", "concurrency": "fail"},
        COMPACT,
    ),
    Expectation(
        "all_but_last_page",
        ("all_but_last_page",),
        ANYWHERE | {"canary": "fail", "coherence": SEEN, "concurrency": "fail"},
        COMPACT,
    ),
    # the same where the pool is that of a real prefill or decode role, and where it is vLLM's queue
    Expectation(
        "all_but_last_page_sglang_pd",
        ("all_but_last_page",),
        ANYWHERE | {"canary": SEEN, "coherence": SEEN, "concurrency": "fail"},
        {**COMPACT, "order": "sglang-pd"},
    ),
    Expectation(
        "all_but_last_page_vllm_lru",
        ("all_but_last_page",),
        ANYWHERE | {"canary": SEEN, "coherence": SEEN, "concurrency": "fail"},
        {**COMPACT, "order": "vllm-lru"},
    ),
    Expectation(
        "residue",
        ("residue",),
        ANYWHERE | {"canary": "fail", "concurrency": "fail"},
        COMPACT,
    ),
    Expectation(
        "dwell",
        ("dwell",),
        ANYWHERE | {"canary": "fail"},
        COMPACT,
    ),
    # what follows the nonce is a customer's, who carries no marker: foreign words, a miss beside them at most
    Expectation(
        "foreign_after_nonce",
        ("foreign_after_nonce",),
        ANYWHERE | {"canary": SEEN, "concurrency": SEEN},
        {**COMPACT, "customers": 1},
    ),
    Expectation("interleaved", ("interleaved",), {"concurrency": "fail"}, COMPACT),
    Expectation("batch_garbles", ("batch_garbles",), {"concurrency": "fail"}, COMPACT),
    Expectation(
        "empty_some",
        ("empty_some",),
        ANYWHERE | {"canary": SEEN, "concurrency": SEEN},
        COMPACT,
        roll_up="not pass",
    ),
    Expectation(
        "empty_all",
        ("empty_all",),
        dict.fromkeys(ACTIVE, SEEN) | {"rejection": "fail"},
        COMPACT,
        roll_up="not pass",
    ),
    Expectation(
        "stream_mix",
        ("stream_mix",),
        ANYWHERE | {"concurrency": "fail"},
        COMPACT,
    ),
    # one answer of sixteen comes from elsewhere: which check meets it, the draw decides
    Expectation(
        "bad_replica",
        ("bad_replica",),
        {"canary": SEEN, "concurrency": SEEN}
        | dict.fromkeys(("rejection", "coherence", "prefill", "prefix"), MAY),
        COMPACT,
    ),
    Expectation(
        "chat_only",
        ("chat_only",),
        {"canary": "fail"} | dict.fromkeys(("rejection", "coherence", "prefill", "concurrency"), MAY),
        COMPACT,
    ),
    Expectation(
        "unstreamed_only",
        ("unstreamed_only",),
        {"canary": "fail", "rejection": "fail"} | dict.fromkeys(("coherence", "prefill", "concurrency"), MAY),
        COMPACT,
    ),
    Expectation("header_leak", ("header_leak",), dict.fromkeys(ACTIVE, "fail"), COMPACT),
    Expectation("logprobs_leak", ("logprobs_leak",), dict.fromkeys(ACTIVE, "fail"), COMPACT),
    # below the limit nothing is refused, and nothing is quoted
    Expectation(
        "error_leak",
        ("error_leak",),
        dict.fromkeys(("rejection", "canary", "coherence", "prefill"), "fail"),
        COMPACT,
    ),
)
