"""Entity resolution as people meet it: data sets that overlap, rules that differ, a second run."""

from __future__ import annotations

import csv
import json
import stat
from pathlib import Path

import pytest

from hdpvfl_mq.app.demo.further import data_folder
from hdpvfl_mq.data.bundled import load_dataset
from hdpvfl_mq.psi import normalise
from schemas.config import IdRules
from schemas.ids import COORDINATOR
from tests.integration.processes import WAIT_S, Processes, hdpvfl, processes
from tests.integration.test_resolution_kill import set_alignment
from tests.unit.psi.psi_federation import Federation as Sessions

OVERLAPS = {"breast": 467, "credit": 24546, "adult": 26641}
needs_folder = pytest.mark.skipif(
    data_folder() is None, reason="HDPVFL_DATA names no folder with further data sets"
)
SMALL = {"dataset": "breast_overlap", "passives": 1, "epochs": 1}


def dataset(name: str):
    return load_dataset(f"{name}_overlap", folder=data_folder())


def ids_in(path: Path) -> set[str]:
    with path.open(newline="") as file:
        return {row["id"] for row in csv.DictReader(file)}


def common_ids(folder: Path) -> set[str]:
    """Plain intersection of the parties' files of a run."""
    return set.intersection(*map(ids_in, (folder / "data").glob("*_train.csv")))


@pytest.mark.parametrize(
    "name", ["breast", *(pytest.param(n, marks=needs_folder) for n in ("credit", "adult"))]
)
def test_all_rows_of_an_overlapping_data_set(name):
    tables = (dataset(name).active, dataset(name).passive)
    profile = IdRules(kind="integer")
    sets = [normalise([table["id"].tolist()], profile).ids for table in tables]
    found = Sessions("oprf", sets).run().check()
    assert [len(ids) for ids in found.found()] == [OVERLAPS[name]] * 2


def test_a_second_run_on_the_same_rows_resolves_nothing(tmp_path):
    runs = []
    for options in ([], [], ["--resolve-again"]):
        ended = hdpvfl(
            "up",
            "--dataset",
            "breast_overlap",
            "--passives",
            1,
            "--out",
            ".",
            *options,
            cwd=tmp_path,
        )
        assert ended.returncode == 0, ended.stderr
        runs.append(ended.stdout)
        summary = json.loads((tmp_path / "runs" / "latest" / "summary.json").read_text())
        common = common_ids(tmp_path / "runs" / summary["run"])
        assert summary["rows_common"] == len(common)
        assert f"{len(common)} common rows" in ended.stdout
    assert ["kept from an earlier run" in said for said in runs] == [False, True, False]
    files = list((tmp_path / "state").glob("*/alignments/*"))
    assert len([path for path in files if path.suffix == ".alignment"]) == 4
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
    replayed = hdpvfl("replay", f"runs/{summary['run']}", "--party", "active", cwd=tmp_path)
    assert replayed.returncode == 0, replayed.stderr


@needs_folder
@pytest.mark.slow
@pytest.mark.parametrize("name", OVERLAPS)
@pytest.mark.parametrize("passives", [1, 3])
def test_a_federation_finds_the_common_rows_and_trains(tmp_path, name, passives):
    ended = hdpvfl(
        "up", "--dataset", f"{name}_overlap", "--passives", passives, "--json", cwd=tmp_path
    )
    assert ended.returncode == 0, ended.stderr
    summary = json.loads(ended.stdout)
    assert summary["rows_common"] == len(common_ids(tmp_path / "runs" / summary["run"]))
    assert summary["test"]["auc"] > 0.6


def make_ids_text(path: Path) -> None:
    head, *rows = path.read_text().splitlines()
    path.write_text("\n".join([head, *(f"no {row}" for row in rows)]) + "\n")


def exit_codes(run: Processes) -> dict[str, int]:
    run.start()
    return {name: child.wait(WAIT_S) for name, child in run.children.items()}


@pytest.mark.parametrize(
    ("field", "value"), [("duplicates", "first"), ("empties", "drop"), ("kind", "text")]
)
def test_a_party_that_reads_ids_otherwise_is_told_at_once(tmp_path, field, value):
    with processes(tmp_path, **SMALL) as run:
        run.change("passive-1", ids=IdRules(**{"kind": "integer", field: value}))
        if field == "kind":  # the file fits the party's own rule, so only the manifest differs
            make_ids_text(run.demo.rows("passive-1", "train"))
        codes = exit_codes(run)
        assert codes == dict.fromkeys(run.names, 3)
        for name in run.names:
            assert f"ids.{field} is {value} in this party's settings" in run.said(name)
            assert "must read ids alike" in run.said(name)


def test_ids_of_another_type_than_declared_stop_their_own_process(tmp_path):
    with processes(tmp_path, **SMALL) as run:
        make_ids_text(run.demo.rows("passive-1", "train"))
        run.start("passive-1")
        assert run.children["passive-1"].wait(WAIT_S) == 2
        assert "id column 1, row 1: the value is not a whole number" in run.said("passive-1")


def test_too_few_common_rows_end_the_run_with_the_number_withheld(tmp_path):
    with processes(tmp_path, **SMALL) as run:
        set_alignment(run, rows_min=10_000)
        codes = exit_codes(run)
        number = len(common_ids(run.demo.folder))
        assert codes == dict.fromkeys(run.names, 3)
        for name in run.names:
            assert "rows_min..rows_max" in run.said(name)
            status = (run.demo.folder / name / "status.json").read_text()
            assert str(number) not in run.said(name)
            assert name == COORDINATOR or json.loads(status)["rows_common"] == 0
