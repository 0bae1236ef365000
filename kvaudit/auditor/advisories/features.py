"""Traits of a running engine that date its build, beside or instead of its version string.

A trait shows that a build has a release's features, not that it has the fix of a bug: on a
development build either may have landed first. Found by comparing released wheels.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from packaging.version import Version

from kvaudit.auditor.advisories.versions import Build

AT_LEAST: Mapping[str, Mapping[str, str]] = {
    "sglang": {
        "launch_command": "0.5.20",
        "/ready": "0.5.20",
        "frontend": "0.5.21",
        "disaggregation_enable_kv_checksum": "0.5.21",
        "enable_pd_role_switch": "0.5.21",
        "disaggregation_decode_host_receive_threshold": "0.5.21",
        "sglang:num_decode_host_receive_queue_reqs": "0.5.21",
        "attn_dp_size": "0.5.22",
        "disaggregation_decode_allocation_policy": "0.5.22",
        "sglang:decode_deferred_kv_release_total": "0.5.22",
        "hicache_object_layout": "0.5.23",
        "enable_http_worker_reuseport": "0.5.23",
        "sglang:prealloc_full_token_usage": "0.5.23",
    },
    "vllm": {
        "kv_cache_usage_perc": "0.9.0",
        "inter_token_latency": "0.10.2",
        "external_prefix_cache": "0.11.2",
        "request_time_per_output_token": "0.12.0",
        "prompt_tokens_by_source": "0.16.0",
        "kv_cache_size_tokens": "0.24.0",
        "prompt_tokens_cached_by_source": "0.32.0",
    },
}
"""Engine -> trait -> the first release that has it."""

AT_MOST: Mapping[str, Mapping[str, str]] = {
    "sglang": {"/get_load": "0.5.20", "/weight_version": "0.5.20", "cuda_graph_max_bs": "0.5.18"},
}
"""Engine -> trait -> the last release that may have it."""


@dataclass(frozen=True, slots=True)
class Traits:
    """What the traits of a process say. ``low`` and ``high`` bound its release (None = open);
    ``denied`` are traits seen that its version cannot have, ``absent`` those that it should have."""

    low: Version | None
    high: Version | None
    denied: tuple[str, ...]
    absent: tuple[str, ...]

    def sentence(self) -> str:
        """ "its features are those of 0.5.21 to 0.5.22"; "" when nothing is known."""
        if self.low and self.high:
            return f"its features are those of {self.low} to {self.high}"
        if self.low:
            return f"it has features of {self.low}"
        return f"it has features that ended with {self.high}" if self.high else ""


def traits(engine: str, features: Mapping[str, bool], build: Build) -> Traits:
    """Compare what was looked for and seen with what the build may have."""
    first, last = AT_LEAST.get(engine, {}), AT_MOST.get(engine, {})
    starts = [Version(first[name]) for name, seen in features.items() if seen and name in first]
    ends = [Version(last[name]) for name, seen in features.items() if seen and name in last]
    denied: list[str] = []
    absent: list[str] = []
    if build.low is not None and build.high is not None:
        for name, seen in sorted(features.items()):
            if seen and name in first and build.high < Version(first[name]):
                denied.append(f"{name} (from {first[name]} on)")
            elif seen and name in last and build.low > Version(last[name]):
                denied.append(f"{name} (until {last[name]})")
            elif not seen and name in first and build.low >= Version(first[name]):
                absent.append(f"{name} (from {first[name]} on)")
    return Traits(max(starts, default=None), min(ends, default=None), tuple(denied), tuple(absent))
