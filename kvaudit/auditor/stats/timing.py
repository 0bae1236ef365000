"""Tests whether two sets of first-token times come from one distribution. The one-sided test of Gu et al. (ICML
2025)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Comparison:
    """``p`` of a one-sided two-sample Kolmogorov-Smirnov test that hits are faster than misses,
    with the effect: area under the ROC curve (0.5 = none) and the median gain (share of time saved)."""

    p: float
    auc: float
    median_gain: float
    hits: int
    misses: int


def faster(hits: Sequence[float], misses: Sequence[float]) -> Comparison:
    """Compare two samples of seconds; ValueError when one is empty."""
    if not hits or not misses:
        raise ValueError("both arms need at least one time")
    import numpy as np
    from scipy import stats

    # greater: the hits' distribution function lies above the misses', so hits are faster
    p = float(stats.ks_2samp(hits, misses, alternative="greater", method="auto").pvalue)
    u = float(stats.mannwhitneyu(hits, misses, alternative="less").statistic)
    gain = 1 - float(np.median(hits)) / float(np.median(misses))
    return Comparison(p, 1 - u / (len(hits) * len(misses)), gain, len(hits), len(misses))


def differ(first: Sequence[float], second: Sequence[float]) -> float:
    """Two-sided KS p-value: the null arm, where a small one means drift and no test can be trusted."""
    from scipy import stats

    return float(stats.ks_2samp(first, second, method="auto").pvalue)
