"""The manifest of a scoring run, derived from that of the training whose models it uses.

It owns this derivation, so nobody computes a number by hand; commands and Python programs propose
the result.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from hdpvfl_mq.app import defaults
from hdpvfl_mq.errors import SettingsError
from hdpvfl_mq.methods import prediction_of
from hdpvfl_mq.runtime.settings import check_settings
from schemas.config import AlignmentSpec, RunManifest
from schemas.methods import TRAINING_KINDS, Scoring
from schemas.privacy import Budget

SESSION_S = 30 * 86400.0
_SAME = (
    *("active_party", "passive_parties", "alignment", "seed"),
    *("loss", "penalty", "intercept", "scale_rows"),
)


@dataclass(frozen=True)
class ScoresWanted:
    """How people are scored; by default exact scores of private weights are disclosed."""

    epsilon: float = defaults.EPSILON  # of one noised score
    delta: float = defaults.DELTA
    noised: bool = False
    exact: bool = False
    coarsen: float = 0.0
    without: bool = False
    rows_min: int = 2
    keep: bool = False  # a session that stays open for single people

    def manifest(self, trained: RunManifest, run: str) -> RunManifest:
        """The manifest of a run of this name that scores with the models of `trained`."""
        made = manifest_of(
            trained,
            run,
            budget=self.budget(trained),
            exact=self.exact,
            coarsen=self.coarsen,
            partner_away="without" if self.without else "refuse",
        )
        alignment = AlignmentSpec(**{**dict(trained.alignment), "rows_min": self.rows_min})
        changes: dict[str, Any] = {"alignment": alignment}
        if self.keep:
            changes |= {"deadline_s": SESSION_S, "absent_after_s": 3600.0}
        return RunManifest(**{**dict(made), **changes})

    def budget(self, trained: RunManifest) -> Budget | None:
        """The price of noised scores; None if private weights make exact scores."""
        if trained.method.session_bound is not None and not self.noised:
            return None
        return check_settings(Budget, {"epsilon": self.epsilon, "delta": self.delta}, "options")


def manifest_of(
    trained: RunManifest, run: str, *, budget: Budget | None, exact: bool = False, **method: Any
) -> RunManifest:
    """The manifest that scores with a training's models; a budget adds noise to session scores."""
    same = {name: getattr(trained, name) for name in _SAME}
    bound = trained.method.session_bound
    if bound is None:
        old = prediction_of(trained)
        if exact:
            return RunManifest(run=run, guarantee="none", method=old, **same)
        return RunManifest(run=run, budget=budget, method=old, **same)
    scores = {"model_run": trained.run, "scores": "noised" if budget else "disclosed"}
    scoring = check_settings(Scoring, {**scores, "score_bound": bound, **method}, "options")
    return RunManifest(run=run, budget=budget, method=scoring, **same)


def scores_name(model: str, taken: Collection[str]) -> str:
    """The first free name for scores of a model."""
    number = 1
    while (name := f"{model}-scores-{number}") in taken:
        number += 1
    return name


def latest_model(runs: Mapping[str, Mapping[str, Any]]) -> str:
    """The newest training that has a model."""
    done = [
        name
        for name, run in runs.items()
        if run["outcome"] == "completed" and run["method"] in TRAINING_KINDS
    ]
    if not done:
        raise SettingsError("no run has left a model yet: see 'hdpvfl runs'")
    return done[-1]
