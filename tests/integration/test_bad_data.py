"""Bad data: a party's process names party, column and row, never a value, and sends nothing."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from hdpvfl_mq.app.commands.up import UpOptions, prepare_demo
from hdpvfl_mq.app.demo.prepare import free_port, write_demo
from hdpvfl_mq.audit.reader import read_transcript
from hdpvfl_mq.data.tables import Table
from hdpvfl_mq.errors import DataError
from hdpvfl_mq.runtime.settings import dump_settings, load_settings
from parties.__main__ import main
from schemas.config import IdRules, PartySettings
from schemas.data import DataSettings
from schemas.model import LossSpec
from tests.federation import Federation, manifest, tables
from tests.integration.processes import QUICK_DATA, fields_of, processes

SECRETS = ("s3cret", "87654.321", "424242", "inf", "nan")

Rows = list[list[str]]


@pytest.fixture(autouse=True)
def _no_broker_comes(monkeypatch):
    """A party waits for a broker to tell the others that it cannot take part."""
    monkeypatch.setattr("parties.process.unable.CONNECT_S", 0.0)


def cell(row: int, column: str, value: str) -> Callable[[Rows], None]:
    """Put a value into a row, counted from 1, the header apart."""

    def change(rows: Rows) -> None:
        rows[row][rows[0].index(column)] = value

    return change


def whole_column(column: str, value: str) -> Callable[[Rows], None]:
    def change(rows: Rows) -> None:
        place = rows[0].index(column)
        for row in rows[1:]:
            row[place] = value

    return change


def rename(column: str, name: str) -> Callable[[Rows], None]:
    return cell(0, column, name)


def keep(count: int) -> Callable[[Rows], None]:
    def change(rows: Rows) -> None:
        del rows[count:]

    return change


def same_id(rows: Rows) -> None:
    cell(3, "id", "424242")(rows)
    cell(8, "id", "424242")(rows)


FEATURE = {"active": "worst_area", "passive-1": "mean_area"}
EITHER = {
    "nan": (lambda f: cell(4, f, "nan"), "column '{f}', row 4: the cell is empty"),
    "empty": (lambda f: cell(4, f, ""), "column '{f}', row 4: the cell is empty"),
    "infinite": (lambda f: cell(9, f, "-inf"), "column '{f}', row 9: the cell is not finite"),
    "huge": (lambda f: cell(9, f, "1e300"), "column '{f}', row 9: the cell is beyond"),
    "text": (lambda f: cell(2, f, "s3cret"), "column '{f}', row 2: the cell is not a number"),
    "constant": (lambda f: whole_column(f, "87654.321"), "column '{f}' is constant"),
    "twice": (lambda f: rename("id", f), "column '{f}' is named twice"),
    "unnamed": (lambda f: rename(f, ""), "column number [0-9]+ has no name"),
    "empty file": (lambda f: keep(0), "the file is empty"),
    "header only": (lambda f: keep(1), "has no row"),
    "empty id": (lambda f: cell(5, "id", ""), "column 'id', row 5: the id is empty"),
    "blank id": (lambda f: cell(5, "id", "  "), "empty ids in rows 5"),
    "repeated id": (lambda f: same_id, "repeated ids in rows 8"),
    "text id": (lambda f: cell(6, "id", "s3cret"), "id column 1, row 6: .* not a whole number"),
    "decimal id": (lambda f: cell(6, "id", "424242.5"), "id column 1, row 6: .* not a whole"),
}
LABEL = {
    "nan label": (cell(7, "y", "nan"), "column 'y', row 7: the cell is empty"),
    "infinite label": (cell(7, "y", "inf"), "column 'y', row 7: the cell is not finite"),
    "label of another kind": (
        cell(7, "y", "424242"),
        "column 'y', row 7: the label must be 0 or 1",
    ),
    "text label": (cell(7, "y", "s3cret"), "column 'y', row 7: the label is not a number"),
}
CASES = [
    *(
        (p, make(FEATURE[p]), t.format(f=FEATURE[p]))
        for p in FEATURE
        for make, t in EITHER.values()
    ),
    *(("active", change, text) for change, text in LABEL.values()),
]
NAMES = [*(f"{p}-{name}" for p in FEATURE for name in EITHER), *LABEL]


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """Files of a federation of two; each test spoils a copy."""
    folder = tmp_path_factory.mktemp("demo")
    made = prepare_demo(UpOptions(out=folder, run="test-run", passives=1, **QUICK_DATA))
    write_demo(made, state=folder / "state", port=free_port())
    return made


def spoil(source: Path, target: Path, change: Callable[[Rows], None]) -> None:
    with source.open(newline="") as file:
        rows = list(csv.reader(file))
    change(rows)
    with target.open("w", newline="") as file:
        csv.writer(file).writerows(rows)


def spoilt(demo, party: str, folder: Path, change: Callable[[Rows], None]) -> Path:
    """The settings of a party whose file is bad; journal and ledger go to `folder`."""
    spoil(demo.rows(party, "train"), folder / "people.csv", change)
    settings = load_settings(PartySettings, demo.settings(party))
    data = DataSettings(**{**fields_of(settings.data), "file": str(folder / "people.csv")})
    changes = {"data": data, "runs": str(folder / "runs"), "state": str(folder / "state")}
    path = folder / "party.toml"
    path.write_text(dump_settings(PartySettings(**{**fields_of(settings), **changes})))
    return path


def shows_no_value(text: str) -> None:
    assert not any(re.search(rf"\b{re.escape(secret)}\b", text) for secret in SECRETS), text


@pytest.mark.parametrize(("party", "change", "expected"), CASES, ids=NAMES)
def test_a_party_with_bad_data_stops_before_it_speaks(
    demo, tmp_path, capsys, party, change, expected
):
    assert main(spoilt(demo, party, tmp_path, change)) == 2
    said = capsys.readouterr().err
    assert re.search(rf"{party}, .*people\.csv: .*{expected}", said), said
    shows_no_value(said.split("people.csv: ", 1)[1])
    status = json.loads((tmp_path / "runs/test-run" / party / "status.json").read_text())
    assert (status["phase"], "people.csv" in status["reason"]) == ("stopped", True)
    shows_no_value(status["reason"].split("people.csv: ", 1)[1])
    assert not list(tmp_path.rglob("journal.db"))  # where there is no journal nothing was sent
    assert not list(tmp_path.rglob("ledger.db"))
    assert list(tmp_path.rglob("*.npy")) == []


def sent_kinds(folder: Path, party: str) -> set[str]:
    transcript = read_transcript(folder / party / "journal.db", party)
    return {envelope.message.kind for envelope in transcript.sent()}


class Weighted(Federation):
    """The active party's table has a column of sample weights and one of offsets."""

    def __init__(self, loss: LossSpec, **columns) -> None:
        people = tables(rows=60)
        bank = people["bank"]
        fields = {name: bank[name] for name in bank.names}
        self.columns = columns
        people["bank"] = Table.of({**fields, **{n: v(bank.rows) for n, v in columns.items()}})
        super().__init__(manifest(loss=loss, guarantee="none", budget=None), people)

    def settings(self, party: str) -> DataSettings:
        if party != "bank":
            return DataSettings()
        names = {f"{name}_column": name for name in self.columns}
        return DataSettings(label_column="y", **names)


def test_a_negative_weight_stops_its_party_before_it_speaks():
    weights = {"weight": lambda n: [1.0] * 4 + [-87654.321] + [1.0] * (n - 5)}
    with pytest.raises(DataError, match="column 'weight', row 5: the sample weight is") as stopped:
        Weighted(LossSpec(name="logistic"), **weights)
    shows_no_value(str(stopped.value))


def test_an_offset_that_the_loss_does_not_take_is_refused_when_it_is_offered():
    federation = Weighted(LossSpec(name="logistic"), offset=lambda n: [0.5] * n)
    simulation = federation.simulate()
    assert set(federation.outcomes.values()) == {"refused"}
    for party in federation.parties:
        assert "offset needs a declared offset_max" in simulation.nodes[party].state.reason
    assert federation.spent() == {p: federation.spent()[p][:2] for p in federation.parties}


def test_ids_read_differently_at_two_parties_are_refused_by_name(tmp_path):
    with processes(tmp_path, passives=1) as real:
        real.change("passive-1", ids=IdRules(kind="text"))
        real.start()
        codes = {name: child.wait(120) for name, child in real.children.items()}
        said = {name: real.said(name) for name in real.names}
        assert {codes[p] for p in real.demo.parties} == {3}, said
        for party in real.demo.parties:
            assert "ids.kind is text in this party's settings and integer" in said[party]
            assert "align_block" not in sent_kinds(real.demo.folder, party)
