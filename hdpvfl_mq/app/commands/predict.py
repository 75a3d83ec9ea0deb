"""`hdpvfl predict`: score rows through the protocol with the models of a run of `hdpvfl up`.

It owns the settings of such a run; the processes are those of production. Every party uses its
ledger of the training, so the cost of the scores adds to the cost of the training.
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
from hdpvfl_mq.app import defaults
from hdpvfl_mq.app.commands.up import run_processes
from hdpvfl_mq.app.demo.further import data_folder
from hdpvfl_mq.app.demo.nursery import Nursery
from hdpvfl_mq.app.demo.prepare import Demo, dataset_of, free_port, write_services
from hdpvfl_mq.app.demo.summary import with_digest
from hdpvfl_mq.app.scoring_manifest import ScoresWanted, scores_name
from hdpvfl_mq.data.preprocess import prepare
from hdpvfl_mq.data.readers import load_table
from hdpvfl_mq.errors import SettingsError
from hdpvfl_mq.glm.families import family, unclipped
from hdpvfl_mq.glm.quality import quality
from hdpvfl_mq.runtime.files import write_private
from hdpvfl_mq.runtime.settings import dump_settings, fields_of, load_settings
from schemas.base import Strict
from schemas.config import BrokerSettings, PartySettings, RunManifest
from schemas.data import DataSettings
from schemas.ids import COORDINATOR
from schemas.policy import PartyPolicy


@dataclass(frozen=True)
class PredictOptions:
    """Options of `hdpvfl predict`."""

    run: str = defaults.RUN
    epsilon: float = defaults.EPSILON
    delta: float = defaults.DELTA
    exact: bool = False
    noised: bool = False  # noised scores of private weights; otherwise exact scores are disclosed
    coarsen: float = 0.0
    without: bool = False
    rows: Path | None = None  # a folder with <party>.csv; None means the held-out rows
    out: Path = Path()

    def file(self, trained: Demo, party: str) -> Path:
        """The file with a party's rows to score."""
        if self.rows is None:
            return trained.rows(party, "test")
        path = (self.rows / f"{party}.csv").absolute()
        if not path.exists():
            raise SettingsError(f"--rows: there is no file {path}; every party needs one")
        return path


def start(options: PredictOptions, console: Console, nursery: Nursery) -> dict[str, Any]:
    """Score the rows with processes that `nursery` starts, and print the result."""
    trained = _trained(options)
    demo = Demo(*_prepared(options, trained), trained.dataset, trained.seed)
    write_services(demo, state=(options.out / "state").absolute())
    began = time.monotonic()
    console.print(
        f"{demo.manifest.run}: {_mode(demo.manifest)} scores with the models of "
        f"{trained.manifest.run}",
        highlight=False,
    )
    statuses = run_processes(demo, console, nursery)
    result = _result(demo, trained, statuses, time.monotonic() - began)
    if options.rows is None:
        result["test"] = _quality(trained, Path(result["predictions"]))
        result["active_alone"] = _alone(trained)
    result = with_digest(result, demo.folder)
    write_private(demo.summary, json.dumps(result, indent=2) + "\n")
    shown.scores(console, result)
    return result


def _trained(options: PredictOptions) -> Demo:
    """The training run whose models are used."""
    folder = (options.out / "runs" / options.run).resolve()
    if not (folder / "settings" / "manifest.toml").exists():
        raise SettingsError(
            f"there is no run {options.run!r} of 'hdpvfl up' in {options.out / 'runs'}: train one "
            "with 'hdpvfl up', or name the service's file with --settings"
        )
    manifest = load_settings(RunManifest, folder / "settings" / "manifest.toml")
    if not manifest.method.trains:
        raise SettingsError(f"{options.run} scored people; name the run that trained the model")
    dataset = dataset_of(folder, further=data_folder(), cache=options.out / "state" / "data")
    demo = Demo(folder, manifest, dataset, manifest.seed)
    missing = [p for p in demo.parties if not (folder / p / "model.json").exists()]
    if missing:
        raise SettingsError(
            f"{options.run} has no model of {', '.join(missing)}: it did not complete, or it is "
            "one run for each class; then name the run of a class"
        )
    return demo


def _prepared(options: PredictOptions, trained: Demo) -> tuple[Path, RunManifest]:
    """Write everything the processes of the prediction read; returns its folder and manifest."""
    runs = trained.folder.parent
    folder = runs / scores_name(trained.manifest.run, {each.name for each in runs.iterdir()})
    manifest = _manifest(options, trained, folder.name)
    files = {party: options.file(trained, party) for party in trained.parties}
    port, settings = free_port(), folder / "settings"
    settings.mkdir(parents=True)

    def put(name: str, model: Strict) -> str:
        (settings / f"{name}.toml").write_text(dump_settings(model))
        return str(settings / f"{name}.toml")

    policy = load_settings(PartyPolicy, trained.settings("policy"))
    allowed = ("sound",) if manifest.budget else policy.guarantees
    changes = {"guarantees": allowed, "exact_scoring": options.exact, "rows_min": 2}
    # The data are public, so scoring the same person repeatedly harms nobody.
    changes |= {"scoring": "disclosed", "queries_max": 10**9, "models_max": 10**6}
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
    old = trained.manifest
    if not options.exact and not (old.guarantee != "none" or old.scale_rows):
        raise SettingsError("rows of this run were not scaled: only --exact can score them")
    wanted = ScoresWanted(
        epsilon=options.epsilon,
        delta=options.delta,
        noised=options.noised,
        exact=options.exact,
        coarsen=options.coarsen,
        without=options.without,
    )
    return wanted.manifest(old, run)


def _mode(manifest: RunManifest) -> str:
    if manifest.budget is not None:
        return "noised"
    return manifest.method.asks.scores or "exact"


def _charged_to(manifest: RunManifest) -> str:
    """Who pays for a score; the keys of console.COSTS_OF_SCORES."""
    payer = manifest.method.payer
    return "nobody" if payer == "scored people" and not manifest.budget else payer


def _result(
    demo: Demo, trained: Demo, statuses: dict[str, dict[str, Any]], wall_s: float
) -> dict[str, Any]:
    path = demo.folder / demo.manifest.active_party / "predictions.csv"
    budget = demo.manifest.budget
    return {
        "run": demo.manifest.run,
        "model_run": trained.manifest.run,
        "mode": _mode(demo.manifest),
        "epsilon": budget.epsilon if budget else None,
        "delta": budget.delta if budget else None,
        "charged_to": _charged_to(demo.manifest),
        "rows_scored": statuses[demo.manifest.active_party]["rows_common"],
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


def _alone(trained: Demo) -> dict[str, Any]:
    """The active party's own quality, from the training's summary."""
    if not trained.summary.exists():
        return {}
    test = json.loads(trained.summary.read_text()).get("test") or {}
    return dict(test.get("active_alone") or {})


def _quality(trained: Demo, predictions: Path) -> dict[str, Any]:
    """Quality against the active party's labels of the held-out rows."""
    with predictions.open(newline="") as file:
        theta = {row["id"]: float(row["theta"]) for row in csv.DictReader(file)}
    model = json.loads((trained.folder / trained.manifest.active_party / "model.json").read_text())
    settings = DataSettings.model_validate_json(json.dumps(model["data"]))
    rows = load_table(trained.rows(trained.manifest.active_party, "test"))
    labelled = prepare(rows, settings, role="active", to_score=True)
    assert labelled.y is not None
    pairs = zip(map(str, labelled.ids[0].tolist()), labelled.y.tolist(), strict=True)
    both = np.array([(theta[key], label) for key, label in pairs if key in theta])
    return quality(family(unclipped(trained.manifest.loss)), both[:, 0], both[:, 1])
