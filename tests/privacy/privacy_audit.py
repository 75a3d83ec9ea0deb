"""An attacker's lower bound on epsilon from many runs on two neighbouring data sets.

It owns the statistics of the audit; it knows no protocol. A claim of mu-GDP says: a test with
true-positive rate t on the second data set has a false-positive rate of at least
Phi(Phi^-1(t) - mu) on the first. Attack and threshold are chosen on one half of the runs; on the
other half both rates get Clopper-Pearson bounds, which together hold with 99.9 % confidence.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hdpvfl_mq.privacy.calibration import epsilon_of
from hdpvfl_mq.privacy.noise import ladder
from tests.lazily import Lazily

special = Lazily("scipy.special")


Array = np.ndarray
# Either rate may miss its bound with half of what 99.9 % leaves.
_MISS = 0.0005
# A stricter bound chooses: it keeps away from thresholds that only look good by luck.
_CHOOSING_MISS = 1e-12
_THRESHOLDS = 100


@dataclass(frozen=True)
class Evidence:
    """Scores of several attacks, (attacks, runs), on the first and on the second data set."""

    claimed_mu: float
    delta: float
    first: Array
    second: Array

    @property
    def claimed_epsilon(self) -> float:
        return epsilon_of(self.claimed_mu, self.delta)

    def mu_lower(self) -> float:
        """Lower bound on mu with 99.9 % confidence; 0 where the attacker learnt nothing."""
        half = self.first.shape[1] // 2
        attack, threshold = max(
            ((a, x) for a in range(len(self.first)) for x in self._thresholds(a, half)),
            key=lambda choice: self._bound(choice[0], choice[1], slice(0, half), _CHOOSING_MISS),
        )
        return max(0.0, self._bound(attack, threshold, slice(half, None), _MISS))

    def epsilon_lower(self) -> float:
        """The same as an epsilon at the claim's delta."""
        return epsilon_of(self.mu_lower(), self.delta)

    def _thresholds(self, attack: int, half: int) -> Array:
        seen = np.concatenate([self.first[attack, :half], self.second[attack, :half]])
        return np.unique(np.quantile(seen, np.linspace(0.001, 0.999, _THRESHOLDS)))

    def _bound(self, attack: int, threshold: float, runs: slice, miss: float) -> float:
        wrong, right = self.first[attack, runs] >= threshold, self.second[attack, runs] >= threshold
        false_high = _binomial_upper(int(wrong.sum()), wrong.size, miss)
        true_low = 1.0 - _binomial_upper(int((~right).sum()), right.size, miss)
        return float(special.ndtri(true_low) - special.ndtri(false_high))


def _binomial_upper(hits: int, trials: int, miss: float) -> float:
    if hits == trials:
        return 1.0
    return float(special.betaincinv(hits + 1, trials - hits, 1 - miss))


@dataclass(frozen=True)
class Case:
    """Releases of both data sets in grid steps, the noise that was added, and the claim."""

    claimed_mu: float
    delta: float
    first: Array
    second: Array
    ratio: float

    def evidence(self, runs: int, key: bytes) -> Evidence:
        """Draw the noise of many runs and score each by its likelihood ratio."""
        move = (self.second - self.first).astype(float)
        middle = (self.second + self.first) / 2
        scores = np.zeros((2, runs))
        # Coordinates that do not move carry independent noise and tell nothing.
        for index in np.flatnonzero(move):
            noise = ladder(self.ratio).sample(2 * runs, key[:28] + int(index).to_bytes(4, "big"))
            for side, value in enumerate((self.first[index], self.second[index])):
                seen = value + noise[side * runs : (side + 1) * runs]
                scores[side] += (seen - middle[index]) * move[index]
        return Evidence(self.claimed_mu, self.delta, scores[:1], scores[1:])


def lattice(releases: list[Array], grid: float) -> Array:
    """One run's releases as one vector of grid steps."""
    return np.concatenate([np.rint(values[0] / grid) for values in releases])
