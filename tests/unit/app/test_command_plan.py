"""hdpvfl plan: figures of the same functions that plan a run, and a verdict that can be wrong."""

from __future__ import annotations

import json

import pytest

from hdpvfl_mq.app.cli import main
from hdpvfl_mq.app.commands.plan import figures
from hdpvfl_mq.methods import plan_run
from hdpvfl_mq.methods.recommend import delta_warning
from schemas.config import RunManifest
from schemas.model import LossSpec
from schemas.privacy import Budget

pytestmark = pytest.mark.seconds

LOGISTIC = LossSpec(name="logistic")


def planned(rows: int, epsilon: float = 1.0, passives: int = 1):
    return figures(rows, passives, Budget(epsilon=epsilon, delta=0.01), LOGISTIC)


def test_the_manifest_it_prints_is_one_a_coordinator_takes():
    found = planned(24_000)
    manifest = RunManifest.model_validate_json(json.dumps(found["manifest"]))
    plan = plan_run(manifest, 24_000)
    assert plan.active_noise.noise_std == found["ways"]["recommended"]["active"]["noise_std"]


def test_the_published_noise_is_shown_with_its_true_epsilon():
    published = planned(455)["ways"]["published"]
    assert published["passive"]["epsilon_true"] > 30.0
    assert published["active"]["noise_std_analytic"] < published["active"]["noise_std"]


@pytest.mark.parametrize("side", ["active", "passive"])
def test_epsilon_is_that_of_all_releases_of_a_side(side):
    """Bug: a passive party's scores alone were shown, without its two statistics."""
    assert planned(2000)["ways"]["recommended"][side]["epsilon_true"] == pytest.approx(1.0, 1e-3)


@pytest.mark.parametrize(
    ("rows", "epsilon", "word"),
    [(455, 1.0, "hardly"), (24_000, 1.0, "most"), (24_000, 0.001, "hardly"), (3_000, 1.0, "part")],
)
def test_the_verdict_follows_rows_and_budget(rows, epsilon, word):
    assert word in planned(rows, epsilon)["verdict"]["text"]


def test_the_command_prints_json_and_refuses_bad_options(capsys):
    assert main(["plan", "--rows", "1000", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == 1000
    assert main(["plan", "--rows", "1000", "--loss", "nope"]) == 2
    assert "loss" in capsys.readouterr().err
    assert main(["plan", "--rows", "1000", "--epsilon", "-1"]) == 2


def test_a_delta_above_one_over_rows_is_said(capsys):
    assert main(["plan", "--rows", "1000", "--delta", "0.01"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "delta = 0.01 is more than 1 / rows" in said
    assert "at most 1.0e-03" in said
    assert main(["plan", "--rows", "1000"]) == 0
    assert "1 / rows" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("delta", "rows", "is_said"),
    [(0.01, 100, False), (0.01, 101, True), (1e-5, 100_000, False), (1e-5, 100_001, True)],
)
def test_the_warning_begins_above_one_over_rows(delta, rows, is_said):
    assert (delta_warning(delta, rows) is not None) == is_said


def test_the_default_delta_of_a_plan_is_not_the_papers(capsys):
    assert main(["plan", "--rows", "5000", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["delta"] == 1e-5
    assert found["warning"] is None


def test_what_each_choice_learns_is_said(capsys):
    budget = Budget(epsilon=1.0, delta=1e-5)
    found = figures(24_000, 1, budget, LOGISTIC)["choices"]
    assert found["bounded"]["scores"] > 2 * found["gaussian"]["scores"]
    assert found["bounded"]["weights"] > found["gaussian"]["weights"]
    assert found["200 disclosed rows"]["scores"] == 1.0
    refused = figures(24_000, 1, Budget(epsilon=20.0, delta=1e-5), LOGISTIC)["choices"]
    assert "bounded noise takes" in refused["bounded"]["refused"]
    assert main(["plan", "--rows", "24000"]) == 0
    assert "200 disclosed rows: keeps" in capsys.readouterr().out
    assert main(["plan", "--rows", "24000", "--epsilon", "20"]) == 0
    assert "bounded: bounded noise takes" in " ".join(capsys.readouterr().out.split())


def test_a_manifest_that_was_written_is_named(tmp_path, capsys):
    file = tmp_path / "manifest.toml"
    assert main(["plan", "--rows", "24000", "--write", str(file)]) == 0
    assert f"hdpvfl train --manifest {file}" in capsys.readouterr().out
