"""Constants of losses and penalties from a manifest: L, beta, rounding, rho (docs/privacy.md).

It knows no noise and no schedule. ValueError: no party may train with these numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

SCORE_ROUNDING = 2.0**-39  # of one's own score, as a part of the norm of the weights
RANGES = {"logistic": (-1.0, 1.0), "squared_hinge": (-1.0, 1.0), "bernoulli": (0.0, 1.0)}
RANGES |= dict.fromkeys(("least_squares", "huber", "normal"), (-3.0, 3.0))
RANGES |= {"poisson": (0.0, 10.0), "gamma": (0.01, 10.0), "gamma_canonical": (0.01, 10.0)}
# beta_y and k_y of the paper's third lemma; the others have 1 and their declared range.
PUBLISHED = {"logistic": (1.1, 1.0), "bernoulli": (1.1, 1.0), "squared_hinge": (2.0, 1.0)}
PUBLISHED |= {"least_squares": (2.0, 3.0), "normal": (1.0, 3.0)}


class Loss:
    """L, beta and the largest number in the formula, for the largest sample weight."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self.spec, self.name, phi = spec, spec["name"], spec["dispersion"]
        low, high = RANGES[self.name]
        self.low = low if spec["label_low"] is None else spec["label_low"]
        self.high = high if spec["label_high"] is None else spec["label_high"]
        positive = self.name.startswith("gamma")
        if phi != 1.0 and not positive and self.name != "normal":
            raise ValueError("a loss without dispersion")
        if self.low >= self.high or (positive and self.low <= 0.0):
            raise ValueError("no range of labels")
        self.label_bound = max(abs(self.low), abs(self.high))
        clip, beta, largest = CONSTANTS[self.name](self, spec["residual_clip"], phi)
        self.bound = clip * spec["weight_max"]
        self.smoothness = beta * spec["weight_max"]
        self.magnitude = largest * spec["weight_max"]

    @property
    def is_logit(self) -> bool:
        return CONSTANTS[self.name] is logit

    @property
    def is_binary(self) -> bool:
        return self.is_logit or self.name == "squared_hinge"

    def rounding(self, norm: float) -> float:
        """How far rounding separates the residuals of a row in two runs of equal scores."""
        reach = self.magnitude + self.smoothness * self.spec["offset_max"]
        return float(SCORE_ROUNDING * self.smoothness * norm + 2.0**-48 * reach)

    def own_move(self, norm: float) -> float:
        """How far a replaced row moves its own residual."""
        if not self.is_logit:
            return float(2.0 * self.bound)
        reach = (norm + self.spec["offset_max"]) / 2.0
        swing = self.spec["weight_max"] * (1.0 + math.tanh(reach)) * (1.0 + 2.0**-50)
        return float(min(2.0 * self.bound, swing))

    def published(self) -> tuple[float, float]:
        return PUBLISHED.get(self.name, (1.0, self.label_bound))


# L, beta and the largest number in the formula of one row of weight 1.
Constants = tuple[float, float, float]


def logit(loss: Loss, clip: float | None, phi: float) -> Constants:
    return min(1.0, clip or 1.0), 0.25, 1.0


def squared_hinge(loss: Loss, clip: float | None, phi: float) -> Constants:
    clip = clip or 2.0
    return clip, 2.0, clip + 4.0


def least_squares(loss: Loss, clip: float | None, phi: float) -> Constants:
    clip = clip or 6.0
    return clip, 2.0, 2.0 * loss.label_bound + clip


def huber(loss: Loss, clip: float | None, phi: float) -> Constants:
    clip = min(loss.spec["huber_c"], clip or loss.spec["huber_c"])
    return clip, 1.0, loss.label_bound + clip


def normal(loss: Loss, clip: float | None, phi: float) -> Constants:
    clip = clip or 3.0 / phi
    return clip, 1.0 / phi, loss.label_bound / phi + clip


def poisson(loss: Loss, clip: float | None, phi: float) -> Constants:
    clip = clip or loss.high
    mean = clip + loss.high
    return clip, mean, mean * max(1.0, math.log(mean))


def gamma(loss: Loss, clip: float | None, phi: float) -> Constants:
    clip = clip or 2.0 / phi
    v = phi * clip + 1.0
    logs = max(abs(math.log(loss.low)), abs(math.log(loss.high))) + math.log(v)
    return clip, v / phi, (1.0 + v * (1.0 + logs)) / phi


def gamma_canonical(loss: Loss, clip: float | None, phi: float) -> Constants:
    clip = clip or loss.high / phi
    beta = min(1.0 / loss.spec["theta_min"] ** 2, (phi * clip + loss.high) ** 2) / phi
    return clip, beta, clip + 2.0 * loss.high / phi


CONSTANTS: dict[str, Callable[[Loss, float | None, float], Constants]] = {
    "logistic": logit,
    "bernoulli": logit,
    "squared_hinge": squared_hinge,
    "least_squares": least_squares,
    "huber": huber,
    "normal": normal,
    "poisson": poisson,
    "gamma": gamma,
    "gamma_canonical": gamma_canonical,
}


def contraction(spec: dict[str, Any], etas: list[float], beta: float | None, free: bool) -> float:
    """rho, the largest of any step; a coordinate without penalty does not shrink."""
    name, strength, largest = spec["name"], spec["strength"], 0.0
    for eta in set(etas):
        curvature = (beta or 0.0) + strength
        if not (0.0 < eta < math.inf and 0.0 <= curvature < math.inf):
            raise ValueError("no step size")
        if eta * curvature * (1.0 - 2.0**-50) > 2.0:
            raise ValueError("a step that may expand")
        factor = 1.0
        if name == "l2":
            factor = abs(1.0 - eta * strength)
            factor = factor if beta is None else max(factor, abs(1.0 - eta * (beta + strength)))
        if name == "elastic_net":
            factor = 1.0 / (1.0 + eta * strength * spec["mixing"])
        largest = max(largest, 1.0 if free else factor + 2.0**-50)
    return min(1.0, largest)
