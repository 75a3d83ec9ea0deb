"""What a privacy cost lets an attacker conclude, as numbers a person can picture.

It owns the translation of mu and (epsilon, delta) into guessing and detection rates; it knows no
run.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

from hdpvfl_mq.privacy.pure import PureUnits, advantage, delta_with_pure

FALSE_ALARMS = (0.001, 0.01, 0.05, 0.10)
PRIORS = (0.001, 0.01, 0.10, 0.50, 0.90)
_NORMAL = NormalDist()
_GRID = tuple(0.1 * step for step in range(121))  # epsilons at which bounds are evaluated
_CERTAIN = 500.0  # an epsilon above this lets any belief become certainty, as far as floats go


@dataclass(frozen=True)
class Meaning:
    """*Bound* on every attacker who sees all releases, whatever else the attacker knows.

    `guess` is the best share of right answers between two equally likely rows; `detections` pairs a
    rate of false alarms with the best rate of hits; `posteriors` pairs a belief before with the
    strongest belief after, unless the privacy loss exceeds epsilon. That has the probability
    `excess`, which is more than delta.
    """

    guess: float
    detections: tuple[tuple[float, float], ...]
    posteriors: tuple[tuple[float, float], ...]
    excess: float


def meaning(mu: float, epsilon: float, *, releases: int, pure: PureUnits = ()) -> Meaning:
    """Meaning of the cost of Gaussian and pure releases; an infinite cost bounds nothing."""
    beliefs = tuple((prior, posterior(epsilon, prior)) for prior in PRIORS)
    if pure and not math.isinf(mu):
        return Meaning(
            guess=(1.0 + advantage(mu, pure)) / 2.0,
            detections=tuple((a, detection_with_pure(mu, pure, a)) for a in FALSE_ALARMS),
            posteriors=beliefs,
            excess=excess_with_pure(mu, pure, epsilon),
        )
    return Meaning(
        guess=1.0 if math.isinf(mu) else _NORMAL.cdf(mu / 2.0),
        detections=tuple((alarms, detection(mu, alarms)) for alarms in FALSE_ALARMS),
        posteriors=beliefs,
        excess=excess(mu, epsilon, adaptive=releases > 1),
    )


def detection_with_pure(mu: float, pure: PureUnits, false_alarms: float) -> float:
    """The most hits: min over e of exp(e) alpha + delta(e), as (e, delta(e))-DP holds for all e."""
    bounds = (math.exp(e) * false_alarms + float(delta_with_pure(e, mu, pure)) for e in _GRID)
    return min(1.0, *bounds)


def excess_with_pure(mu: float, pure: PureUnits, epsilon: float) -> float:
    """The probability that the privacy loss exceeds epsilon, even if an attacker steers releases.

    *Bound.* delta(e) is at least (1 - exp(e - epsilon)) times that probability, for every
    e < epsilon.
    """
    below = [e for e in _GRID if e < epsilon]
    bounds = (float(delta_with_pure(e, mu, pure)) / -math.expm1(e - epsilon) for e in below)
    return min([1.0, *bounds])


def detection(mu: float, false_alarms: float) -> float:
    """The most hits a test with this rate of false alarms can have: Phi(Phi^-1(alpha) + mu)."""
    if math.isinf(mu):
        return 1.0
    return _NORMAL.cdf(_NORMAL.inv_cdf(false_alarms) + mu)


def posterior(epsilon: float, prior: float) -> float:
    """The strongest belief an attacker can reach from a prior belief.

    Odds grow by at most exp(epsilon).
    """
    if epsilon > _CERTAIN:
        return 1.0
    return prior * math.exp(epsilon) / (1.0 - prior + prior * math.exp(epsilon))


def excess(mu: float, epsilon: float, *, adaptive: bool) -> float:
    """The probability that the privacy loss exceeds epsilon, for the worst pair of neighbours.

    *Bound.* The loss of a Gaussian release is normal with mean mu^2 / 2 and variance mu^2. An
    attacker who steers several releases by earlier ones can stop at the largest loss: then the
    loss is the running maximum of a Brownian motion with drift 1/2 up to the time mu^2.
    """
    if mu == 0.0 or epsilon > _CERTAIN:
        return 0.0
    if math.isinf(mu):
        return 1.0
    at_the_end = _NORMAL.cdf(mu / 2.0 - epsilon / mu)
    if not adaptive:
        return at_the_end
    return min(1.0, at_the_end + math.exp(epsilon) * _NORMAL.cdf(-mu / 2.0 - epsilon / mu))
