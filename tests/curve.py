"""delta(epsilon; mu) as a float, for tests that compare with it."""

from __future__ import annotations

import math

from hdpvfl_mq.privacy.calibration import exact_delta


def delta_of(epsilon: float, mu: float) -> float:
    """The smallest delta at which a mu-GDP run is (epsilon, delta)-DP, rounded up."""
    return min(1.0, math.nextafter(float(exact_delta(epsilon, mu)), math.inf))
