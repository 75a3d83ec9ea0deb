"""`hdpvfl predict`: rows scored through the protocol with the models of a run of `hdpvfl up`.

It owns the settings of such a run; the processes are those of production. Everybody's ledger is the
one of the training: what the scores cost comes on top of it.
"""

from __future__ import annotations

import csv
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from hdpvfl_mq.app import console as shown
from hdpvfl_mq.app.commands.up import data_folder, run_processes
from hdpvfl_mq.app.demo.prepare import ACTIVE, Demo, free_port, write_services
from hdpvfl_mq.data.bundled import load_dataset
from hdpvfl_mq.data.preprocess import prepare
from hdpvfl_mq.data.readers import load_table
from hdpvfl_mq.errors import SettingsError
from hdpvfl_mq.glm.families import family, unclipped
from hdpvfl_mq.glm.quality import quality
from hdpvfl_mq.methods.prediction.plan import prediction_of
from hdpvfl_mq.runtime.files import write_private
from hdpvfl_mq.runtime.settings import check_settings, dump_settings, fields_of, load_settings
from schemas.base import Closed
from schemas.config import AlignmentSpec, BrokerSettings, PartyPolicy, PartySettings, RunManifest
from schemas.data import DataSettings
from schemas.ids import COORDINATOR
from schemas.methods import Prediction
from schemas.privacy import Budget


@dataclass(frozen=True)
class PredictOptions:
    """What a person may choose."""

    run: str = "latest"
    epsilon: float = 1.0
    delta: float = 1e-2
    exact: bool = False
    rows: Path | None = None  # a folder with <party>.csv; None takes the held-out rows
    out: Path = Path()

    def file(self, trained: Demo, party: str) -> Path:
        """The rows of a party that are scored."""
        if self.rows is None:
            return trained.rows(party, "test")
        path = (self.rows / f"{party}.csv").absolute()
        if not path.exists():
            raise SettingsError(f"--rows: there is no file {path}; every party needs one")
        return path


def start(options: PredictOptions, console: Console) -> dict[str, Any]:
    """Score and report."""
    trained = _trained(options)
    demo = Demo(*_prepared(options, trained), trained.dataset, trained.seed)
    write_services(demo, state=(options.out / "state").absolute())
    began = time.monotonic()
    console.print(
        f"{demo.manifest.run}: {'exact' if options.exact else 'noised'} scores with the models of "
        f"{trained.manifest.run}",
        highlight=False,
    )
    statuses = run_processes(demo, console)
    result = _result(demo, trained, statuses, time.monotonic() - began)
    if options.rows is None:
        result["test"] = _quality(trained, Path(result["predictions"]))
    write_private(demo.summary, json.dumps(result, indent=2) + "\n")
    shown.scores(console, result)
    return result


def _trained(options: PredictOptions) -> Demo:
    """The run that left the models."""
    folder = (options.out / "runs" / options.run).resolve()
    if not (folder / "settings" / "manifest.toml").exists():
        raise SettingsError(
            f"there is no run {options.run!r} of 'hdpvfl up' in {options.out / 'runs'}; "
            "with your own files see docs/prediction.md"
        )
    manifest = load_settings(RunManifest, folder / "settings" / "manifest.toml")
    if isinstance(manifest.method, Prediction):
        raise SettingsError(f"{options.run} is a prediction; name the run that was trained")
    name = (folder / "settings" / "dataset").read_text()
    dataset = load_dataset(name, folder=data_folder(), cache=options.out / "state" / "data")
    demo = Demo(folder, manifest, dataset, manifest.seed)
    missing = [p for p in demo.parties if not (folder / p / "model.json").exists()]
    if missing:
        raise SettingsError(
            f"{options.run} has no model of {', '.join(missing)}: it did not complete, or it is "
            "one run for each class; then name the run of a class"
        )
    return demo


def _prepared(options: PredictOptions, trained: Demo) -> tuple[Path, RunManifest]:
    """Folder and manifest of the prediction, with everything its processes read."""
    runs, number = trained.folder.parent, 1
    while (folder := runs / f"{trained.manifest.run}-scores-{number}").exists():
        number += 1
    manifest = _manifest(options, trained, folder.name)
    files = {party: options.file(trained, party) for party in trained.parties}
    port, settings = free_port(), folder / "settings"
    settings.mkdir(parents=True)

    def put(name: str, model: Closed) -> str:
        (settings / f"{name}.toml").write_text(dump_settings(model))
        return str(settings / f"{name}.toml")

    policy = load_settings(PartyPolicy, trained.settings("policy"))
    allowed = ("sound",) if manifest.budget else policy.guarantees
    changes = {"guarantees": allowed, "exact_scoring": options.exact, "rows_min": 2}
    policy_file = put("policy", PartyPolicy(**{**dict(policy), **changes}))
    broker = load_settings(BrokerSettings, trained.settings(COORDINATOR))
    bind = {"bind": f"tcp://127.0.0.1:{port}", "manifest": put("manifest", manifest)}
    put(COORDINATOR, BrokerSettings(**{**fields_of(broker), **bind}))
    for party in trained.parties:
        party_changes = {
            "run": manifest.run,
            "broker": f"tcp://127.0.0.1:{port}",
            "policy": policy_file,
            "model": str(trained.folder / party / "model.json"),
            "data": DataSettings(file=str(files[party])),
        }
        old = load_settings(PartySettings, trained.settings(party))
        put(party, PartySettings(**{**fields_of(old), **party_changes}))
    return folder, manifest


def _manifest(options: PredictOptions, trained: Demo, run: str) -> RunManifest:
    rows = json.loads((trained.folder / ACTIVE / "model.json").read_text())["rows"]
    old = trained.manifest
    budget = check_settings(Budget, {"epsilon": options.epsilon, "delta": options.delta}, "options")
    if not options.exact and not (old.guarantee != "none" or old.scale_rows):
        raise SettingsError("rows of this run were not scaled: only --exact can score them")
    kept = ("active_party", "passive_parties", "loss", "penalty", "intercept", "seed")
    return RunManifest(
        run=run,
        guarantee="none" if options.exact else "sound",
        budget=None if options.exact else budget,
        method=prediction_of(old, rows),
        scale_rows=old.scale_rows,
        alignment=AlignmentSpec(**{**dict(old.alignment), "rows_min": 2}),
        **{name: getattr(old, name) for name in kept},
    )


def _result(
    demo: Demo, trained: Demo, statuses: dict[str, dict[str, Any]], wall_s: float
) -> dict[str, Any]:
    path = demo.folder / ACTIVE / "predictions.csv"
    budget = demo.manifest.budget
    return {
        "run": demo.manifest.run,
        "model_run": trained.manifest.run,
        "mode": "noised" if budget else "exact",
        "epsilon": budget.epsilon if budget else None,
        "delta": budget.delta if budget else None,
        "rows_scored": statuses[ACTIVE]["rows_common"],
        "wall_s": round(wall_s, 3),
        "predictions": str(path),
        "parties": [
            {
                "name": party,
                **{
                    key: statuses[party].get(key)
                    for key in ("role", "noise_std", "epsilon_spent", "epsilon_lifetime")
                },
            }
            for party in demo.parties
        ],
    }


def _quality(trained: Demo, predictions: Path) -> dict[str, Any]:
    """Against the labels the active party holds of the held-out rows."""
    with predictions.open(newline="") as file:
        theta = {row["id"]: float(row["theta"]) for row in csv.DictReader(file)}
    model = json.loads((trained.folder / ACTIVE / "model.json").read_text())
    settings = DataSettings.model_validate_json(json.dumps(model["data"]))
    rows = load_table(trained.rows(ACTIVE, "test"))
    labelled = prepare(rows, settings, role="active", to_score=True)
    assert labelled.y is not None
    pairs = zip(map(str, labelled.ids[0].tolist()), labelled.y.tolist(), strict=True)
    both = np.array([(theta[key], label) for key, label in pairs if key in theta])
    return quality(family(unclipped(trained.manifest.loss)), both[:, 0], both[:, 1])
