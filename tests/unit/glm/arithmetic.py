"""The round arithmetic of three parties in one process, without noise, messages or journal.

It owns the driver that trains for the reference comparison. Its interface is that of a federation
(blocks and a response in, one weight vector per party out), so that a real one can replace it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hdpvfl_mq.glm.block import ColumnBlock
from hdpvfl_mq.glm.penalties import penalty, project
from hdpvfl_mq.glm.response import Response
from hdpvfl_mq.glm.schedule import Schedule, StepSize
from schemas.model import PenaltySpec

LARGE_BALL = 1e6
SETTLED = 1e-6


@dataclass(frozen=True)
class Problem:
    """What is minimised: the active party's block first, its response, a penalty."""

    blocks: Sequence[ColumnBlock]
    response: Response
    penalty: PenaltySpec


def train(problem: Problem, schedule: Schedule, step: StepSize) -> tuple[list[np.ndarray], int]:
    """Rounds until nothing moves or the schedule ends; final weights and how many rounds."""
    active, *passives = problem.blocks
    pen = penalty(problem.penalty)
    weights = [block.start_weights(problem.response.family.start_theta) for block in problem.blocks]
    for round_ in range(schedule.rounds):
        rows, eta = schedule.batch(round_), step.at(schedule.epoch(round_))
        shares = [b.scores(rows, w).expose() for b, w in zip(passives, weights[1:], strict=True)]
        own = active.scores(rows, weights[0])
        h = problem.response.residual(rows, own, np.sum(shares, axis=0))
        moved = [
            project(pen.step(w, block.gradient(rows, h), eta, block.free), LARGE_BALL)
            for block, w in zip(problem.blocks, weights, strict=True)
        ]
        largest = max(float(np.abs(a - b).max()) for a, b in zip(moved, weights, strict=True))
        weights = moved
        if largest < SETTLED * eta:
            return weights, round_ + 1
    return weights, schedule.rounds


def predictions(problem: Problem, weights: Sequence[np.ndarray]) -> np.ndarray:
    """Expected labels at given weights of all parties, offsets apart."""
    rows = slice(0, problem.blocks[0].rows)
    shares = [b.scores(rows, w).expose() for b, w in zip(problem.blocks, weights, strict=True)]
    return problem.response.family.mean(np.sum(shares, axis=0))


def objective(problem: Problem, weights: Sequence[np.ndarray]) -> float:
    """Mean loss plus penalty at given weights of all parties."""
    rows = slice(0, problem.blocks[0].rows)
    own, *others = (b.scores(rows, w) for b, w in zip(problem.blocks, weights, strict=True))
    received = np.sum([share.expose() for share in others], axis=0)
    losses = problem.response.loss(rows, own, received).expose()
    pen = penalty(problem.penalty)
    values = (pen.value(w, b.free) for b, w in zip(problem.blocks, weights, strict=True))
    return float(losses.mean()) + sum(values)
