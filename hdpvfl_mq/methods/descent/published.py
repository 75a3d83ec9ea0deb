"""The paper's sensitivities, and the real cost of a run that uses them.

It owns Lemmas 2 and 3 as published (which are not a proof) and the bounds under which the ledger
books a paper-mode run; it knows no noise.
"""

from __future__ import annotations

import math

from hdpvfl_mq.methods.descent.bound import ActiveBounds, PassiveBounds, PublicSchedule


def _constants(schedule: PublicSchedule) -> tuple[float, float, float, float]:
    """(e, T, eta, b); the lemmas have one step size and one batch size: the largest."""
    eta = schedule.eta if isinstance(schedule.eta, float | int) else max(schedule.eta)
    return schedule.epochs, schedule.rounds, eta, max(schedule.batch_rows)


def published_passive(schedule: PublicSchedule, *, radius: float, residual_bound: float) -> float:
    """Lemma 2: sqrt(4 L^2 e^2 T eta^2 / b + 8 k L e^2 eta / b + 4 k^2 e)."""
    e, rounds, eta, b = _constants(schedule)
    step = residual_bound * e * eta
    return math.sqrt(
        4 * step**2 * rounds / b + 8 * radius * step * e / b + 4 * radius**2 * e,
    )


def published_active(
    schedule: PublicSchedule,
    *,
    radius: float,
    residual_bound: float,
    beta_theta: float,
    beta_y: float,
    label_bound: float,
) -> float:
    """Lemma 3: Lemma 2 with beta_theta L for L and beta_theta k + beta_y k_y for k."""
    reach = beta_theta * radius + beta_y * label_bound
    return published_passive(schedule, radius=reach, residual_bound=beta_theta * residual_bound)


def paper_passive_bounds(radius: float) -> PassiveBounds:
    """Bounds of a paper-mode passive party: it does not clip, so d_t = 2k from the first batch."""
    return PassiveBounds(radius=radius, clip_received=math.inf, rho=1.0)


def paper_active_bounds(
    rho: float | None,
    *,
    smoothness: float,
    radius: float,
    residual_bound: float | None,
    rounding: float,
    local_steps: int = 1,
) -> ActiveBounds:
    """Bounds of a paper-mode active party: the recursion if it holds, else infinite cost.

    `rho` is None if a step may expand. `residual_bound` is the real bound of |h| for every label
    and every received value; None if nothing bounds it.
    """
    bound = math.inf if rho is None or residual_bound is None else residual_bound
    return ActiveBounds(
        radius=radius,
        residual_bound=bound,
        smoothness=smoothness,
        rho=1.0 if rho is None else rho,
        rounding=rounding,
        local_steps=local_steps,
    )
