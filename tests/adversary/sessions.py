"""A scoring session under the adversary: what it asks for, and what the answers may tell.

It owns the check of answers; queries are moves like any other. The weights are those of one
training, fixed for both neighbours, because they were released. So only the replaced row's own
score may differ, and nobody is scored more often than the account of scored people grants.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hdpvfl_mq.privacy.receiving import receive_scores
from parties.assets import Assets
from parties.phases import Training, setup_of
from parties.rounds.score_sums import unpacked
from parties.rounds.scoring import ScoringPassive
from schemas.config import RunManifest
from schemas.messages import Message
from schemas.methods import Scoring
from schemas.policy import PartyPolicy
from schemas.scoring import ScoreQuery, ScoreReply
from schemas.tensor import Tensor
from tests.adversary.forged import Act
from tests.adversary.tap import Leak

STEPS = (0.0, 0.5)
Granted = tuple[np.ndarray, np.ndarray]  # places and their scores


def session_of(trained: RunManifest) -> RunManifest:
    """A session with the model of this run."""
    method = Scoring(model_run=trained.run, coarsen=STEPS[trained.seed // 2 % 2])
    changes = {"run": f"{trained.run}-session", "absence": "wait", "budget": None}
    return RunManifest(**{**dict(trained), **changes, "method": method})


def query(act: Act, state: Any) -> Message:
    """Places that the act's numbers choose; flaws reverse them or leave the session."""
    setup = setup_of(state)
    rows = setup.plan.rows if setup else 4
    places = np.flatnonzero(np.resize(np.asarray(act.values), rows) > 0)
    if act.flaw % 9 == 8:
        places = places[::-1]
    if act.flaw % 9 == 7:
        places = places + 1
    number = getattr(getattr(state, "rounds", None), "taken", -1) + 1 + act.shift
    return ScoreQuery(
        number=max(0, number),
        last=act.flaw % 11 == 10,
        places=Tensor.of(places.astype(np.int64)),
    )


@dataclass
class Answers:
    """The answers of both neighbours to the same queries."""

    policy: PartyPolicy
    asked: Counter[int] = field(default_factory=Counter)  # how often each place was granted
    first: list[Granted] = field(default_factory=list)
    scores: int = 0
    replaced: int = 0  # the row that differs, in the order of the session

    def take(self, own: Assets, state: Training, reply: ScoreReply, *, is_second: bool) -> None:
        """Open an answer as the active party does; the state is the one before it was sent."""
        plan, rounds = state.setup.plan, state.rounds
        assert isinstance(rounds, ScoringPassive)
        assert rounds.open is not None
        places = rounds.open.places.array().astype(np.int64)
        granted = places[~unpacked(reply.refused, len(places))]
        key = own.sealing_key(plan.manifest.active_party, reply.release.release_id)
        values = receive_scores(reply.release, plan.passive_noise, key, count=len(granted))
        if not is_second:
            self.first.append((granted, values))
            self._count(granted)
        else:
            self._compare(self.first.pop(0), (granted, values))

    def _count(self, granted: np.ndarray) -> None:
        self.scores += granted.size
        self.asked.update(granted.tolist())
        if self.asked and max(self.asked.values()) > self.policy.queries_max:
            raise Leak("somebody was scored more often than the policy allows")

    def _compare(self, one: Granted, other: Granted) -> None:
        (places, values), (others, theirs) = one, other
        if not np.array_equal(places, others):
            raise Leak("neighbours grant different people")
        moved = set(places[values != theirs].tolist())
        if moved - {self.replaced}:
            raise Leak("a score tells of a row other than the scored one")
