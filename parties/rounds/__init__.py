"""What a round computes: one module a method, both sides, top to bottom.

It owns which moves belong to which variant of `schemas.methods.Method`. Joining, alignment and the
end of a run belong to the roles.
"""

from __future__ import annotations

from collections.abc import Mapping

from parties.rounds import descent, one_round, prediction, private_model
from parties.rounds.base import Rounds
from schemas.methods import Descent, OneRound, Prediction, PrivateModel

ROUNDS: Mapping[type, Rounds] = {
    Descent: descent.ROUNDS,
    OneRound: one_round.ROUNDS,
    PrivateModel: private_model.ROUNDS,
    Prediction: prediction.ROUNDS,
}
