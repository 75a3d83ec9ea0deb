"""A live federation in Python: propose runs through the local service, and watch them.

It owns the requests that a program may send to its own party's service; the service does the work,
and the other parties' policies decide. Rows stay at their parties: an estimator only describes the
training.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from hdpvfl_mq.app import defaults
from hdpvfl_mq.app.live_model import LiveModel
from hdpvfl_mq.app.live_run import LiveRun
from hdpvfl_mq.app.run_name import run_name
from hdpvfl_mq.app.scoring_manifest import ScoresWanted, latest_model
from hdpvfl_mq.errors import SettingsError
from hdpvfl_mq.methods.recommend import penalty_named, recommend
from hdpvfl_mq.runtime import control
from hdpvfl_mq.runtime.settings import (
    check_choice,
    check_settings,
    describe_mistakes,
    load_settings,
    names,
)
from schemas.config import AlignmentSpec, PartyServiceSettings, RunManifest
from schemas.methods import Guarantee, Method, with_options
from schemas.model import LossSpec, PenaltyName
from schemas.policy import PartyPolicy
from schemas.privacy import Budget


@dataclass(frozen=True)
class Federation:
    """The federation that this machine's party belongs to."""

    settings: PartyServiceSettings
    path: Path

    def __repr__(self) -> str:
        own = self.settings
        return f"Federation({own.federation!r}, party={own.party!r}, settings={str(self.path)!r})"

    @classmethod
    def connect(cls, settings: str | Path = "party.toml") -> Federation:
        """The federation of a party's settings file; its service must be running."""
        path = Path(settings)
        if names(path, "federations"):
            raise SettingsError(
                f"{path} is a broker's file: use the settings of the active party, party.toml"
            )
        federation = cls(load_settings(PartyServiceSettings, path), path)
        federation.status()
        return federation

    def ask(self, command: str, **fields: Any) -> dict[str, Any]:
        """Send a command to the service and return its answer."""
        folder = Path(self.settings.state) / self.settings.party
        question = {"command": command, **fields}
        return control.ask(folder, question, what=f"hdpvfl party {self.path}")

    def status(self) -> dict[str, Any]:
        """Members, runs, and the budget spent and left."""
        return self.ask("status")

    @property
    def partners(self) -> tuple[str, ...]:
        """The passive members."""
        members = self.status()["members"]
        return tuple(sorted(party for party, role in members.items() if role == "passive"))

    # -- runs ---------------------------------------------------------------------------------

    def fit(
        self, estimator: Any, *, partners: tuple[str, ...] = (), run: str | None = None
    ) -> LiveRun:
        """Propose a training with an estimator's loss, penalty, guarantee and budget."""
        if getattr(estimator, "columns", None) is not None:
            raise SettingsError("columns: every party's columns are those of its own settings")
        wanted = Wanted(
            loss=estimator.loss,
            epsilon=estimator.epsilon,
            delta=estimator.delta,
            guarantee=estimator.guarantee,
            penalty=estimator.penalty,
            disclosed_rows=estimator.disclosed_rows,
            partners=partners,
            run=run,
        )
        return self.propose(self.manifest(wanted))

    def manifest(self, wanted: Wanted) -> RunManifest:
        """The manifest the planner chooses for `wanted`, from public quantities only."""
        settings = self.settings
        name = wanted.run or run_name(settings.federation)
        passives = wanted.partners or self.partners
        if not passives:
            raise SettingsError("nobody to train with: see 'hdpvfl status'")
        chosen = {"epsilon": wanted.epsilon, "delta": wanted.delta}
        budget = check_settings(Budget, chosen, "options")
        loss = check_settings(LossSpec, {"name": wanted.loss}, "options: loss")
        parties = (settings.party, passives)
        guarantee = check_choice(Guarantee, wanted.guarantee, "guarantee")
        base = recommend(name, parties, guarantee, budget, loss, penalty=wanted.penalty or "l2")
        policy = load_settings(PartyPolicy, Path(settings.policy))
        alignment = AlignmentSpec(ids=settings.ids, rows_min=max(policy.rows_min, wanted.rows_min))
        changes: dict[str, Any] = {"alignment": alignment.model_dump(), "seed": wanted.seed}
        if wanted.penalty is not None:
            penalty = check_choice(PenaltyName, wanted.penalty, "penalty")
            changes["penalty"] = penalty_named(base, penalty).model_dump()
        changes["method"] = _chosen(base.method, wanted.of_the_private_model).model_dump()
        return check_settings(RunManifest, {**base.model_dump(), **changes}, "options")

    def again(self, run: str) -> RunManifest:
        """The manifest of an earlier run under a new name."""
        fields = self.ask("manifest", run=run)["manifest"]
        taken, number = set(self.ask("runs")["runs"]), 2
        while (name := f"{run}-{number}") in taken:
            number += 1
        return check_settings(RunManifest, {**fields, "run": name}, "run")

    def propose(self, manifest: RunManifest, **more: Any) -> LiveRun:
        """Propose a run to its parties; each of them accepts, refuses or asks its operator.

        With scores, `rows` is this party's file of people, `out` where the scores go; a `session`
        stays open for single people.
        """
        named = {key: str(v) if isinstance(v, Path) else v for key, v in more.items()}
        self.ask("propose", manifest=json.loads(manifest.model_dump_json()), **named)
        return LiveRun(self, manifest)

    def scoring(self, wanted: ScoresWanted, trained: RunManifest, name: str) -> RunManifest:
        """The manifest of scores with a training's models, within this party's own policy."""
        policy = load_settings(PartyPolicy, Path(self.settings.policy))
        rows_min = max(policy.rows_min, wanted.rows_min)
        return replace(wanted, rows_min=rows_min).manifest(trained, name)

    def run(self, name: str) -> LiveRun:
        """A run that was proposed earlier."""
        fields = self.ask("manifest", run=name)["manifest"]
        return LiveRun(self, check_settings(RunManifest, fields, "run"))

    def model(self, run: str = "latest", wanted: ScoresWanted | None = None) -> LiveModel:
        """The model of a training, by default the newest one, which predicts through the services.

        `wanted` says how people are scored.
        """
        name = latest_model(self.ask("runs")["runs"]) if run == "latest" else run
        return self.run(name).model(wanted)

    def folder(self, run: str) -> Path:
        """Where this party keeps what a run left it."""
        return Path(self.settings.runs) / run / self.settings.party


@dataclass(frozen=True)
class Wanted:
    """Description of a training; the planner chooses all other settings."""

    loss: str = defaults.LOSS
    epsilon: float = defaults.EPSILON
    delta: float = defaults.DELTA
    guarantee: Guarantee = defaults.GUARANTEE
    penalty: str | None = None
    noise: str | None = None
    disclosed_rows: int | None = None
    held_out_rows: int | None = None
    partners: tuple[str, ...] = ()
    rows_min: int = 1
    seed: int = defaults.SEED
    run: str | None = None

    @property
    def of_the_private_model(self) -> dict[str, Any]:
        """The choices that only the private model has."""
        names = ("noise", "disclosed_rows", "held_out_rows")
        return {name: value for name in names if (value := getattr(self, name))}


def _chosen(method: Method, options: Mapping[str, Any]) -> Method:
    """The method with options that only the private model has."""
    try:
        return with_options(method, options)
    except ValidationError as wrong:
        raise SettingsError(f"options: {describe_mistakes(wrong)}") from None
    except ValueError as unknown:
        raise SettingsError(f"{unknown}: for guarantee sound and the private model only") from None
