"""What a round computes: one module per method, both sides, top to bottom.

It owns which moves belong to which variant of `schemas.methods.Method`. The roles own joining,
alignment and the end of a run.
"""

from __future__ import annotations

from collections.abc import Mapping

from parties.rounds import descent, prediction, private_model, scoring
from parties.rounds.base import Rounds
from schemas.methods import Descent, Prediction, PrivateModel, Scoring

ROUNDS: Mapping[type, Rounds] = {
    Descent: descent.ROUNDS,
    PrivateModel: private_model.ROUNDS,
    Prediction: prediction.ROUNDS,
    Scoring: scoring.ROUNDS,
}
