"""Fits prefill time against prompt length, robustly and non-negative, and finds what is too fast to be true."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

SIGMA_FLOOR = 0.05
"""Least assumed log-scale spread: a fit that looks better than 5 % is luck (methods.md 2.c)."""


@dataclass(frozen=True, slots=True)
class Fit:
    """TTFT(n) = a + b n + c n^2 in seconds over uncached tokens n; ``sigma`` is the log-scale MAD."""

    a: float
    b: float
    c: float
    sigma: float
    longest: int
    residuals: tuple[float, ...]

    def expected(self, uncached: int) -> float:
        """Predicted seconds for ``uncached`` tokens."""
        return self.a + self.b * uncached + self.c * uncached**2


@dataclass(frozen=True, slots=True)
class Speed:
    """One TTFT held against the fit. ``testable`` is False where a fast answer could be honest."""

    expected: float
    ratio: float
    z: float
    testable: bool
    too_fast: bool


def fit(uncached: Sequence[int], seconds: Sequence[float]) -> Fit:
    """Fit log TTFT to log(a + b n + c n^2) with soft-L1 loss and non-negative coefficients.

    ValueError for fewer than five distinct lengths or a non-positive time.
    """
    if len(uncached) != len(seconds) or len(set(uncached)) < 5:
        raise ValueError("a prefill fit needs at least five distinct lengths, one time each")
    if min(seconds) <= 0 or min(uncached) < 1:
        raise ValueError("lengths are at least one token and times are positive")
    import numpy as np
    from scipy.optimize import least_squares

    n, y = np.asarray(uncached, float), np.asarray(seconds, float)
    scale = float(n.max())

    def model(q: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        part = lengths / scale
        return np.exp(q[0]) + np.exp(q[1]) * part + np.exp(q[2]) * part**2  # type: ignore[no-any-return]

    spread = math.log(max(float(np.ptp(y)), 1e-3))
    start = [math.log(max(float(y.min()), 1e-4)), spread, spread - 2]
    found = least_squares(
        lambda q: np.log(model(q, n)) - np.log(y),
        start,
        loss="soft_l1",
        f_scale=0.1,
        bounds=([-15] * 3, [12] * 3),
    )
    residuals = np.log(y) - np.log(model(found.x, n))
    sigma = max(1.4826 * float(np.median(np.abs(residuals - np.median(residuals)))), SIGMA_FLOOR)
    a, b, c = (float(value) for value in np.exp(found.x))
    return Fit(a, b / scale, c / scale**2, sigma, int(scale), tuple(float(r) for r in residuals))


def judge(curve: Fit, uncached: int, seconds: float, *, z_limit: float = 4.0, floor: float = 0.5) -> Speed:
    """Too fast: below ``z_limit`` sigma *and* below ``floor`` x expected, where expected > 3a.

    Not testable beyond 1.25 x the longest fitted length: extrapolation is not evidence.
    """
    expected = curve.expected(max(uncached, 1))
    z = (math.log(seconds) - math.log(expected)) / curve.sigma
    testable = expected > 3 * curve.a and uncached <= 1.25 * curve.longest
    return Speed(
        expected, seconds / expected, z, testable, testable and z < -z_limit and seconds < floor * expected
    )
