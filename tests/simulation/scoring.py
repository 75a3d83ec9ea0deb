"""A training with private weights, and the scoring sessions that follow it, for tests."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from parties.assets import TrainedModel
from parties.phases import Training
from parties.rounds.score_sums import Answer
from parties.score_desk import ScoreDesk
from schemas.methods import PrivateModel, Scoring
from tests.federation import Federation, manifest, policy, tables

PASSIVES = ("shop", "telco")


def trained(**changes) -> tuple[Federation, dict[str, TrainedModel]]:
    federation = Federation(manifest(**{"method": PrivateModel(), **changes}), tables(300))
    simulation = federation.simulate()
    models = {}
    for party, weights in federation.weights(simulation).items():
        state = simulation.nodes[party].state.trained
        is_active = party == "bank"
        models[party] = TrainedModel(
            manifest=federation.manifest,
            data=federation.data[party].settings,
            rows=state.setup.plan.rows,
            dataset="people",
            weights=weights,
            weights_private=not is_active,
            score_size=1.0 if is_active else state.rounds.size,
            coefficients=federation.coefficients(simulation) if is_active else {},
            score_regressions=state.rounds.score_regressions if is_active else {},
        )
    return federation, models


@dataclass
class Session:
    """A scoring session over made-up people, and the answers the active party got."""

    federation: Federation
    answers: list[Answer] = field(default_factory=list)
    batch: int = 16

    def run(self, **options):
        """Ask for everybody in batches, then end."""
        self.federation.operators["bank"] = self._operator
        return self.federation.simulate(**options)

    def _operator(self, node):
        # A desk as a process that has just started has it: what it knows is in the state.
        desk = node.__dict__.setdefault(
            "desk", ScoreDesk(batch=self.batch, is_everybody=True, take=self._take)
        )
        return desk.next(node.state)

    def _take(self, answer):
        if all(answer.number != known.number for known in self.answers):
            self.answers.append(answer)

    @property
    def theta(self):
        return np.concatenate([a.theta for a in sorted(self.answers, key=lambda a: a.number)])


def session(models, *, rows=80, run="scores", policies=None, **changes) -> Session:
    method = {name: changes.pop(name) for name in Scoring.model_fields if name in changes}
    model = models["bank"]
    settings = {
        "run": run,
        "method": Scoring(**{"model_run": model.manifest.run, **method}),
        "loss": model.manifest.loss,
        "budget": None,
    }
    allowed = {p: policy(scoring="disclosed") for p in models} | (policies or {})
    federation = Federation(
        manifest(**{**settings, **changes}), tables(rows, seed=11), policies=allowed
    )
    federation.models = models
    return Session(federation)


def following(before: Session, models, **changes) -> Session:
    """Another session of the same parties: ledgers and accounts are those of the first."""
    after = session(models, **changes)
    after.federation.ledgers = before.federation.ledgers
    after.federation.scored = before.federation.scored
    return after


def in_session(node) -> bool:
    return isinstance(node.state, Training)
