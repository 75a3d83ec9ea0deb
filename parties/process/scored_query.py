"""A query of scores as the account of scored people counts it.

It owns what makes two queries the same one; it knows no file and no limit.
"""

from __future__ import annotations

import numpy as np

from hdpvfl_mq.methods.scoring.plan import ScoringPlan
from hdpvfl_mq.privacy.noise import commitment
from hdpvfl_mq.privacy.score_limits import Asked
from parties.assets import Assets
from parties.common_rows import people_at
from parties.phases import Phase, setup_of
from parties.rounds.score_sums import session_plan
from schemas.ids import RunId
from schemas.records import Charge


def asked_of(run: RunId, own: Assets, state: Phase, charge: Charge) -> Asked:
    """Who is asked for, and by what model, in a scoring session in this state.

    A journal that is gone takes its secret with it. The same places are then another query: other
    people may stand there, and the same people would get other noise.
    """
    setup = setup_of(state)
    assert setup is not None
    plan = session_plan(setup)
    places = charge.places.array().astype("<i8")
    return Asked(
        run=run,
        query=charge.query,
        ids=people_at(own, setup, places),
        places=commitment(own.secret, own.salt) + places.tobytes(),
        model=own.trained.weights.tobytes() + _step(plan),
        mu2_units=plan.mu2_units,
    )


def _step(plan: ScoringPlan) -> bytes:
    """The step of coarse scores; nothing for exact and noised ones."""
    step = plan.method.coarsen
    return np.float64(step).tobytes() if step else b""
