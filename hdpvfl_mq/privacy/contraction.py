"""How far one step of a penalty can move two weight vectors apart, relative to their distance.

It owns the table of factors (rho) and the refusal of step sizes where the argument fails; it knows
no data and no schedule.
"""

from __future__ import annotations

import math
from typing import Literal

from hdpvfl_mq.errors import RefusedError, SettingsError

Penalty = Literal["l2", "l1", "elastic_net", "none"]
# Covers the roundings of eta * (lambda + beta) and of the difference to one.
_ROUNDING = 2.0**-50


def contraction(
    penalty: Penalty,
    eta: float,
    *,
    lam: float,
    alpha: float = 0.0,
    beta: float | None = None,
    has_unpenalised: bool = False,
) -> float:
    """Give rho of one executed step, rounded up; `beta` is None for a passive party.

    *Bound.* l2: the step is w - eta (g + lambda w). The passive gradient does not depend on w, so
    rho = |1 - eta lambda|. The active one is the gradient of a convex, beta-smooth function, so the
    step's Jacobian has its eigenvalues between 1 - eta (lambda + beta) and 1 - eta lambda.
    l1 and elastic net: the soft threshold does not expand, the division contracts.
    An unpenalised coordinate is not shrunk by anything: rho = 1.
    *Guarantee.* Refused where eta (beta + lambda) > 2: the step may then expand.
    """
    if not all(math.isfinite(x) and x >= 0.0 for x in (eta, lam, alpha, beta or 0.0)) or eta == 0.0:
        raise SettingsError("eta must be positive; lambda, alpha and beta finite and not negative")
    curvature = (beta or 0.0) + lam
    if eta * curvature * (1.0 - _ROUNDING) > 2.0:
        raise RefusedError(
            f"step size {eta:g} is too large: eta * (beta + lambda) must not exceed 2, "
            f"so eta <= {2.0 / curvature:.6g}"
        )
    if has_unpenalised or penalty in ("l1", "none"):
        return 1.0
    if penalty == "l2":
        slow = abs(1.0 - eta * lam)
        fast = slow if beta is None else abs(1.0 - eta * curvature)
        return min(1.0, max(slow, fast) + _ROUNDING)
    if penalty == "elastic_net":
        return min(1.0, 1.0 / (1.0 + eta * lam * alpha) + _ROUNDING)
    raise SettingsError(f"unknown penalty {penalty!r}: l2, l1, elastic_net or none")
