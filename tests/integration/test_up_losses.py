"""`hdpvfl up` with other losses than logistic, and with more than two classes, to its summary."""

from __future__ import annotations

import csv
import json
import os
import signal
from pathlib import Path

import pytest

from hdpvfl_mq.app.cli import main
from hdpvfl_mq.app.commands.ledger import opened_copy, standings
from hdpvfl_mq.app.commands.up import UpOptions, prepare_demo
from hdpvfl_mq.app.demo.multiclass import class_demos
from hdpvfl_mq.app.demo.prepare import DEMO_LIFETIME_EPSILON
from hdpvfl_mq.data.bundled import load_dataset
from hdpvfl_mq.data.tables import Table
from hdpvfl_mq.errors import SettingsError
from hdpvfl_mq.privacy.calibration import mu_of
from schemas.privacy import MU2_UNIT_BITS
from tests.contracts.test_leaving import row

ROWS = 1500
NONE = ("--guarantee", "none")
SHORT = (*NONE, "--epochs", "60")
TEN = ("--epsilon", 10)


def write_csv(path: Path, table: Table) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(table.names)
        writer.writerows(zip(*(table[name].tolist() for name in table.names), strict=True))


@pytest.fixture
def few_rows(tmp_path, monkeypatch):
    """randhie with fewer rows, in a folder as HDPVFL_DATA names one."""
    data = load_dataset("randhie")
    for side, table in (("active", data.active), ("passive", data.passive)):
        few = table.take(table["id"] < ROWS)
        write_csv(tmp_path / f"randhie_{side}.csv", few)
    monkeypatch.setenv("HDPVFL_DATA", str(tmp_path))


@pytest.fixture
def up(tmp_path, monkeypatch, capsys):
    """The command in this process, its parties in their own: what was shown, and the summary."""
    monkeypatch.setenv("COLUMNS", "200")
    before = signal.getsignal(signal.SIGTERM)

    def run(*arguments: object) -> tuple[str, dict]:
        words = ("up", "--passives", 1, "--delta", 0.01, "--out", tmp_path / "out", *arguments)
        assert main([str(word) for word in words]) == 0, capsys.readouterr().err
        shown = capsys.readouterr().out
        return shown, json.loads((tmp_path / "out/runs/latest/summary.json").read_text())

    yield run
    signal.signal(signal.SIGTERM, before)


RANDHIE = (("--dataset", "randhie", "--loss", "poisson"), "poisson", 0.05)
DIABETES = (("--dataset", "diabetes"), "gamma", 0.3)


@pytest.mark.usefixtures("few_rows")
@pytest.mark.parametrize(
    ("arguments", "loss", "expected", "privacy"),
    [
        pytest.param(*RANDHIE, SHORT, id="randhie-none"),
        pytest.param(*DIABETES, TEN, id="diabetes-ten"),
        pytest.param(*RANDHIE, TEN, id="randhie-ten", marks=pytest.mark.slow),
        pytest.param(*DIABETES, NONE, id="diabetes-none", marks=pytest.mark.slow),
    ],
)
def test_d_squared_is_in_table_and_summary(up, arguments, loss, expected, privacy):
    shown, summary = up(*arguments, *privacy)
    test = summary["test"]
    parts = (summary, summary["partners"], *summary["parties"])
    listed = row("`runs/<run>/summary.json`")  # of what leaves a party, in docs/threat-model.md
    assert {name for part in parts for name in part} - listed == set()
    assert (summary["loss"], set(test["central"])) == (loss, {"d2"})
    for part in (test, test["active_alone"], test["central"]):
        assert f"{part['d2']:.4f}" in shown
    assert "d2" in shown
    assert test["central"]["d2"] > expected
    if privacy is not TEN:  # clipping or a timid step would show here
        assert test["d2"] == pytest.approx(test["central"]["d2"], abs=0.01)
    else:
        assert test["d2"] > -0.2
        assert [party["epsilon_spent"] for party in summary["parties"]] == [
            pytest.approx(10.0, rel=1e-4)
        ] * 2


@pytest.mark.slow
@pytest.mark.skipif(not os.environ.get("HDPVFL_DATA"), reason="dvisits needs HDPVFL_DATA")
def test_dvisits_without_privacy_reaches_the_central_fit(up):
    _, summary = up("--dataset", "dvisits", "--loss", "poisson", *NONE)
    assert summary["test"]["d2"] == pytest.approx(summary["test"]["central"]["d2"], abs=0.005)


def test_every_class_is_a_run_and_charged_as_one(up, tmp_path):
    shown, summary = up("--dataset", "wine", "--epsilon", 4, "--run", "three")
    assert summary["classes"] == {f"class_{c}": f"three-class_{c}" for c in range(3)}
    units = 3 * mu_of(4.0, 0.01) ** 2 * 2.0**MU2_UNIT_BITS
    for party in summary["parties"]:
        first, *later = party["epsilon_classes"]
        assert first == pytest.approx(4.0, rel=1e-4)
        # A passive party makes X'X once and keeps it, so its later classes are cheaper.
        cheapest = 3.999 if party["name"] == "active" else 3.5
        assert all(cheapest < epsilon <= 4.0 for epsilon in later)
        assert 4.0 < party["epsilon_spent"] == party["epsilon_lifetime"] < 12.0
        with opened_copy(Path(party["ledger"])) as ledger:
            (wine,) = standings(ledger)
        assert wine["epsilon_cap"] == DEMO_LIFETIME_EPSILON
        spent = sum(one["mu2_units"] for one in wine["runs"])
        assert 0.9 * units < spent < 1.001 * units
        assert f"{party['epsilon_spent']:.4g}" in shown
    test = summary["test"]
    assert test["central"]["accuracy"] > 0.9
    assert test["active_alone"]["accuracy"] > 0.6
    assert test["accuracy"] > 0.3
    for name in summary["classes"]:
        assert (tmp_path / "out/runs" / f"three-{name}" / "summary.json").exists()
    # Entities were resolved for the first class only: the rows are the same.
    assert shown.count("kept from an earlier run") == 2
    again, _ = up("--resume", "three-class_1")
    assert "one process each" not in again  # all three are there, nothing is trained


def test_the_runs_of_classes_differ_in_name_and_label_only(tmp_path):
    demo = prepare_demo(UpOptions(dataset="wine", out=tmp_path, run="three"))
    demos = class_demos(demo)
    assert [one.manifest.run for one in demos.values()] == [f"three-{name}" for name in demos]
    for name, one in demos.items():
        same = {**one.manifest.model_dump(), "run": "three"}
        assert same == demo.manifest.model_dump()
        settings = one.dataset.settings(one.dataset.active, "binary")
        assert (settings.label_positive, settings.label_classes) == (name, tuple(demos))


def test_a_loss_that_is_not_for_classes_is_refused(tmp_path):
    with pytest.raises(SettingsError, match="does not fit class labels"):
        prepare_demo(UpOptions(dataset="wine", loss="poisson", out=tmp_path))
    assert not (tmp_path / "runs").exists()
