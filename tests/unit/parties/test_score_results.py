"""Scores on disk: by the rows of the file, labelled, written as CSV or Parquet in chunks."""

from __future__ import annotations

import csv
import stat
from dataclasses import replace
from types import MappingProxyType

import numpy as np
import pyarrow.parquet
import pytest

from hdpvfl_mq.data.preprocess import prepare
from hdpvfl_mq.data.readers import TableFile
from hdpvfl_mq.errors import OperatorError
from parties.common_rows import rows_of
from parties.phases import setup_of
from parties.process.score_results import ScoreResults, reasons_in
from parties.process.score_session import ScoreSession
from parties.rounds.score_sums import Answer
from schemas.data import DataSettings
from tests.simulation.scoring import session, trained

ROWS = 80


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    """The active party's assets after a session, with its rows in a file, and the setup."""
    ran = session(trained()[1], rows=ROWS)
    simulation = ran.run()
    node = simulation.nodes["bank"]
    table = ran.federation.tables["bank"]
    path = tmp_path_factory.mktemp("rows") / "bank.csv"
    with path.open("w", newline="") as file:
        lines = csv.writer(file)
        lines.writerow(table.names)
        lines.writerows(zip(*(table[name].tolist() for name in table.names), strict=True))
    settings = DataSettings(file=str(path), label_column="y", label_kind="binary")
    data = prepare(TableFile.of(settings), settings, role="active")
    return replace(node.role.own, data=data), setup_of(node.state), ran


def filled(folder, own, setup, ran) -> ScoreResults:
    results = ScoreResults(folder, own)
    for answer in ran.answers:
        results.take(setup, answer)
    return results


def test_every_common_row_has_a_line_in_the_order_of_the_file(tmp_path, ended):
    own, setup, ran = ended
    results = filled(tmp_path, own, setup, ran)
    order = rows_of(own, setup).order
    assert results.write(tmp_path / "scores.parquet") == len(order)
    assert results.write(tmp_path / "scores.csv") == len(order)
    assert stat.S_IMODE((tmp_path / "scores.csv").stat().st_mode) == 0o600
    table = pyarrow.parquet.read_table(tmp_path / "scores.parquet").to_pydict()
    with (tmp_path / "scores.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    assert [line["id"] for line in lines] == table["id"]
    assert [float(line["theta"]) for line in lines] == table["theta"]
    by_row = dict(zip(order.tolist(), ran.theta.tolist(), strict=True))
    assert table["theta"] == [by_row[row] for row in sorted(by_row)]
    assert table["prediction"] == pytest.approx(1 / (1 + np.exp(-np.array(table["theta"]))))


def test_what_is_missing_is_a_label_and_what_is_refused_is_empty(tmp_path, ended):
    own, setup, _ = ended
    without = {"shop": b"\xc0", "telco": b"\x40"}
    answer = Answer(
        0,
        np.arange(3),
        np.array([1.0, 2.0, 3.0]),
        MappingProxyType(without),
        MappingProxyType({"shop": "so", "telco": "policy.queries_max = 3"}),
        refused=b"\x40",
    )
    ScoreResults(tmp_path, own).take(setup, answer)
    again = ScoreResults(tmp_path, own)  # what a process that starts again finds
    again.take(setup, answer)
    assert reasons_in(tmp_path) == {"shop": "so", "telco": "policy.queries_max = 3"}
    assert again.write(tmp_path / "scores.parquet") == 3
    table = pyarrow.parquet.read_table(tmp_path / "scores.parquet").to_pydict()
    found = dict(zip(table["theta"], table["without"], strict=True))
    assert found == {1.0: "shop", None: "shop+telco", 3.0: ""}
    # Bug: a refused person had a prediction of nearly 0, because a loss clamps theta.
    predicted = dict(zip(table["theta"], table["prediction"], strict=True))
    assert predicted.pop(None) is None
    assert predicted == pytest.approx({theta: 1 / (1 + np.exp(-theta)) for theta in (1.0, 3.0)})


async def test_a_session_that_is_not_open_answers_nobody(tmp_path, ended):
    own, _, _ = ended
    settings = type("Settings", (), {"scores_out": None, "session": True})()
    with pytest.raises(OperatorError, match="not open yet"):
        await ScoreSession(settings, tmp_path, own).ask({"places": [0]}, lambda: None)
