"""`hdpvfl up`, then `hdpvfl predict`: real processes, through the command line."""

from __future__ import annotations

import csv
import json
import stat
from pathlib import Path

import numpy as np
import pytest

from hdpvfl_mq.app.demo import evaluate
from tests.integration.processes import hdpvfl


def predict(folder: Path, *options: object) -> dict:
    done = hdpvfl("predict", "--out", folder, "--json", *options, cwd=folder)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("predict")
    options = ("--dataset", "breast", "--passives", 2, "--delta", 0.01)
    done = hdpvfl("up", "--out", folder, *options, "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder


def test_disclosed_scores_are_those_of_the_demo_and_cost_no_training_row_anything(trained):
    result = predict(trained)
    assert result["mode"] == "disclosed"
    path = Path(result["predictions"])
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with path.open(newline="") as file:
        found = {int(row["id"]): row for row in csv.DictReader(file)}
    run = trained / "runs" / result["model_run"]
    parties = ("active", "passive-1", "passive-2")
    models = {p: json.loads((run / p / "model.json").read_text()) for p in parties}
    files = {p: run / "data" / f"{p}_test.csv" for p in parties}
    theta = evaluate.score(models, evaluate.prepared(models, files)["features"])
    # A partner's rows are rounded to 2^-20 before they are scored.
    scores = [float(found[key]["theta"]) for key in sorted(found, key=str)]
    assert scores == pytest.approx(theta.tolist(), abs=1e-4)
    chances = [float(found[key]["prediction"]) for key in sorted(found, key=str)]
    assert chances == pytest.approx((1 / (1 + np.exp(-theta))).tolist(), abs=1e-4)
    assert {row["without"] for row in found.values()} == {""}
    assert result["test"]["auc"] > 0.95
    assert {party["epsilon_spent"] for party in result["parties"]} == {0.0}
    assert all(party["epsilon_lifetime"] <= 1.0 for party in result["parties"])


def test_noised_scores_are_charged_to_who_is_scored_and_can_be_audited_and_replayed(trained):
    result = predict(trained, "--noised", "--epsilon", 5, "--delta", 0.01)
    assert {party["epsilon_spent"] for party in result["parties"]} == {0.0}
    shown = hdpvfl("ledger", "scored", trained / "state/passive-1/ledger.db", "--json", cwd=trained)
    account = json.loads(shown.stdout)
    assert account["people"] == result["rows_scored"]
    assert 4.9 < account["epsilon_most"] <= 5.0
    run = trained / "runs" / result["run"]
    audited = hdpvfl("audit", run, "--ledgers", trained / "state", cwd=trained)
    assert audited.returncode == 0, audited.stdout
    for party in ("active", "passive-1"):
        replayed = hdpvfl("replay", run, "--party", party, cwd=trained)
        assert replayed.returncode == 0, replayed.stdout


def test_a_run_that_is_not_there_or_did_not_end_is_named(trained):
    done = hdpvfl("predict", "nowhere", "--out", trained, cwd=trained)
    assert done.returncode == 2
    assert "no run 'nowhere'" in done.stderr
    half = trained / "runs" / "half"
    (half / "settings").mkdir(parents=True)
    whole = next(trained.glob("runs/breast-*/settings/dataset"))
    for name in ("manifest.toml", "dataset"):
        (half / "settings" / name).write_text(whole.with_name(name).read_text())
    done = hdpvfl("predict", "half", "--out", trained, cwd=trained)
    assert done.returncode == 2
    assert "has no model of active" in done.stderr


def test_a_prediction_is_neither_predicted_with_nor_resumed(trained):
    scores = Path(predict(trained)["run"]).name
    done = hdpvfl("predict", scores, "--out", trained, cwd=trained)
    assert done.returncode == 2
    assert "name the run that trained the model" in done.stderr
    done = hdpvfl("up", "--resume", scores, "--out", trained, cwd=trained)
    assert done.returncode == 2
    assert "no training" in done.stderr


def test_other_rows_without_labels_are_scored_from_a_folder(trained, tmp_path):
    run = next(trained.glob("runs/breast-*/settings/dataset")).parents[1]
    for party in ("active", "passive-1", "passive-2"):
        with (run / "data" / f"{party}_test.csv").open(newline="") as file:
            rows = list(csv.DictReader(file))[:40]
        names = [name for name in rows[0] if name != "y"]
        with (tmp_path / f"{party}.csv").open("w", newline="") as file:
            out = csv.DictWriter(file, names, extrasaction="ignore")
            out.writeheader()
            out.writerows(rows)
    result = predict(trained, run.name, "--rows", tmp_path)
    assert "test" not in result
    found = list(csv.DictReader(Path(result["predictions"]).read_text().splitlines()))
    assert len(found) == result["rows_scored"] > 2
    (tmp_path / "passive-2.csv").unlink()
    before = len(list(trained.glob(f"runs/{run.name}-scores-*")))
    done = hdpvfl("predict", run.name, "--out", trained, "--rows", tmp_path, cwd=trained)
    assert done.returncode == 2
    assert "passive-2.csv; every party needs one" in done.stderr
    assert len(list(trained.glob(f"runs/{run.name}-scores-*"))) == before  # nothing was written
