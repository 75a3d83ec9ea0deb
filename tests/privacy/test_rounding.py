"""Large labels: the plan covers what floating point does to the releases of neighbours.

The rows, the received values and the step are chosen so that, in the second round, every score of
one run lies just below and of the other just above a rounding border of the sum with what was
received. Blocks, labels, penalty and plan are the product's; the steps are those of
tests/contracts/test_federation_arithmetic.py, which a federation repeats bit for bit.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from pydantic import ValidationError

from hdpvfl_mq.arrays.unreleased import FloatVector
from hdpvfl_mq.glm.block import ColumnBlock
from hdpvfl_mq.glm.families import family
from hdpvfl_mq.glm.penalties import penalty, project
from hdpvfl_mq.glm.response import Response
from hdpvfl_mq.methods import plan_run
from schemas.methods import ActiveSide, Descent, PassiveSide
from schemas.model import LABEL_MAX, LossSpec, PenaltySpec
from tests.federation import manifest

ROWS, ETA, NORM = 400, 0.5, 1.0
ALL = slice(0, ROWS)


def declared(label: float) -> LossSpec:
    """Least squares whose residuals are clipped at a few units in the last place of a label."""
    clip = 8.4 * math.ulp(label)
    return LossSpec(name="least_squares", label_low=-label, label_high=label, residual_clip=clip)


def releases(spec: LossSpec, x: float, first_label: float) -> list[FloatVector]:
    """Residuals of two rounds, before noise; the first row has a label of its own."""
    label = spec.label_high
    assert label is not None
    y = np.full(ROWS, label)
    y[0] = first_label
    block = ColumnBlock(np.full((ROWS, 1), x))
    response, step = Response(family(spec), y), penalty(PenaltySpec(name="none")).step
    w, found = np.zeros(1), []
    for received in (np.zeros(ROWS), np.full(ROWS, label)):
        h = response.residual(ALL, block.scores(ALL, w), received)
        found.append(h.expose())
        w = project(step(w, block.gradient(ALL, h), ETA), NORM)
    return found


def planned(spec: LossSpec) -> float:
    """Delta of the active party over two rounds of all rows."""
    run = manifest(
        loss=spec,
        intercept=False,
        penalty=PenaltySpec(name="none"),
        method=Descent(
            epochs=2,
            batch_rows=10**9,
            active=ActiveSide(step_size=ETA, weight_norm=NORM),
            passive=PassiveSide(received_clip=1.0),
        ),
    )
    return plan_run(run, ROWS).active_noise.sensitivity


@pytest.mark.parametrize("label", [1.0, 1e3, 1e6, LABEL_MAX])
def test_neighbours_with_large_labels_move_no_more_than_the_plan_says(label):
    spec = declared(label)
    clip = family(spec).clip
    # Labels above 0 pull w to eta L x. Its score is half a unit of the label's last place.
    border = math.sqrt(0.5 * math.ulp(label) / (ETA * clip) / (1.0 - 1.0 / ROWS))
    moved = [
        a - b
        for a, b in zip(releases(spec, border, label), releases(spec, border, -label), strict=True)
    ]
    assert np.count_nonzero(moved[1]) == ROWS  # every row crossed its border
    total = math.sqrt(sum(float(m @ m) for m in moved))
    assert total > 1.5 * math.sqrt(2.0) * 2.0 * clip  # far beyond what the replaced row moves
    assert total <= planned(spec)


def test_labels_beyond_the_public_bound_are_refused_with_the_remedy():
    with pytest.raises(ValidationError, match="label_scale"):
        declared(1e17)
