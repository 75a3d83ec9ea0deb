"""Compare Gaussian and bounded noise at one budget: deviation, attacker's gain, number of runs.

It owns the comparison that `hdpvfl plan` shows; every figure comes from the accountant and the
noise distributions. All it knows of a method is how a passive party divides its budget.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from hdpvfl_mq.errors import HdpvflError
from hdpvfl_mq.privacy.accountant import affordable
from hdpvfl_mq.privacy.bounded_laws import label_noise, number_noise
from hdpvfl_mq.privacy.calibration import mu_of
from hdpvfl_mq.privacy.pure import advantage, mu_beside
from schemas.privacy import MAX_SLOTS, MU2_UNIT_BITS, PURE_UNIT_BITS, Budget

# A passive party's scores get this share of its budget; the statistics of its weights the rest.
SCORES_SHARE = 0.8


def noise_choices(budget: Budget, lifetime: Budget) -> dict[str, Any]:
    """Both choices for both sides; deviations are in units of the width of the released range."""
    return {
        "lifetime": {"epsilon": lifetime.epsilon, "delta": lifetime.delta},
        "gaussian": _gaussian(budget, lifetime),
        "bounded": _bounded(budget, lifetime),
    }


def _gaussian(budget: Budget, lifetime: Budget) -> dict[str, Any]:
    mu = mu_of(budget.epsilon, budget.delta)
    cost = {"attacker_gains": advantage(mu), "runs": _runs(lifetime, mu, ())}
    return {
        "labels": {"noise": 1.0 / mu, **cost},
        "scores": {"noise": 1.0 / (mu * math.sqrt(SCORES_SHARE)), **cost},
    }


def _bounded(budget: Budget, lifetime: Budget) -> dict[str, Any]:
    try:
        label = label_noise(budget.epsilon)
        score = number_noise(-1.0, 1.0, SCORES_SHARE * budget.epsilon)
    except HdpvflError as refused:
        return {"refused": str(refused)}
    mu = mu_beside(budget.epsilon, budget.delta, (score.pure_units,))
    return {
        "labels": {
            "noise": math.sqrt(label.variance(1.0)),
            "attacker_gains": advantage(0.0, (label.pure_units,)),
            "runs": _runs(lifetime, 0.0, (label.pure_units,)),
            "pure_epsilon": label.pure_units * 2.0**-PURE_UNIT_BITS,
        },
        "scores": {
            "noise": math.sqrt(score.variance()) / 2.0,
            "attacker_gains": advantage(mu, (score.pure_units,)),
            "runs": _runs(lifetime, mu, (score.pure_units,)),
            "pure_epsilon": score.pure_units * 2.0**-PURE_UNIT_BITS,
        },
    }


def _runs(lifetime: Budget, mu: float, pure: tuple[int, ...]) -> int:
    """How many such runs fit into one lifetime if its pure slots were sized for them."""
    mu2 = math.ceil(mu**2 * 2.0**MU2_UNIT_BITS)
    most = MAX_SLOTS + 1 if pure else 2**40
    return _largest(lambda runs: affordable(lifetime, runs * mu2, 0, pure * runs), most)


def _largest(holds: Callable[[int], bool], most: int) -> int:
    """The largest number below `most` for which `holds` is true; it must be true for 0."""
    low, high = 0, 1
    while high < most and holds(high):
        low, high = high, min(2 * high, most)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def show_choices(console: Any, found: dict[str, Any]) -> None:
    """Print the comparison as a table."""
    from rich.table import Table  # noqa: PLC0415 - start-up

    life = found["lifetime"]
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("noise", "of", "deviation", "attacker gains", "runs in a lifetime"):
        table.add_column(title)
    for name in ("gaussian", "bounded"):
        if "refused" in found[name]:
            table.add_row(name, found[name]["refused"])
            continue
        for what, part in found[name].items():
            gains = f"{part['attacker_gains']:.2f}"
            runs = f"{part['runs']}{' or more' if part['runs'] == MAX_SLOTS else ''}"
            table.add_row(name, what, f"{part['noise']:.3g}", gains, runs)
    console.print(table)
    console.print(
        f"deviation: of the noise, in widths of the range of a label or score; attacker gains: 0 "
        f"is a blind guess which of two rows a person has, 1 is certainty; lifetime: epsilon "
        f"{life['epsilon']:g} at delta {life['delta']:g}, its pure_slots cut for bounded runs",
        style="dim",
        highlight=False,
    )
