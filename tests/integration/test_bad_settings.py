"""Bad settings stop a process before anything is sent, naming the field and the remedy."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

import broker.__main__
import parties.__main__
from hdpvfl_mq.app import cli
from hdpvfl_mq.privacy.ledger_store import Ledger
from schemas.ids import COORDINATOR
from tests.integration.processes import ROOT, Processes, environment, processes


@pytest.fixture
def demo(tmp_path):
    with processes(tmp_path) as written:
        yield written


@pytest.fixture(autouse=True)
def _no_broker_comes(monkeypatch):
    """A party waits for a broker to tell the others that it cannot take part."""
    monkeypatch.setattr("parties.process.unable.CONNECT_S", 0.0)


@pytest.fixture(autouse=True)
def no_connection(monkeypatch):
    """Whoever opens a connection in this file has gone too far."""

    def opened(*_, **__):
        raise AssertionError("a connection was opened")

    monkeypatch.setattr(parties.__main__, "DealerLink", opened)


def edit(demo: Processes, name: str, old: str, new: str) -> Path:
    path = demo.demo.settings(name)
    text = path.read_text()
    assert old in text, f"{old!r} is not in {path.name}"
    path.write_text(text.replace(old, new, 1))
    return path


def line(demo: Processes, name: str, start: str) -> str:
    """The line of a settings file that begins so."""
    text = demo.demo.settings(name).read_text()
    return next(row for row in text.splitlines() if row.startswith(start))


def run(demo: Processes, name: str, capsys) -> tuple[int, str]:
    module = broker.__main__ if name == COORDINATOR else parties.__main__
    code = module.main(demo.demo.settings(name))
    return code, capsys.readouterr().err


def rows(demo: Processes, party: str) -> Path:
    return demo.demo.rows(party, "train")


def set_cell(path: Path, column: str, value: str) -> None:
    header, first, *others = path.read_text().splitlines()
    cells = first.split(",")
    cells[header.split(",").index(column)] = value
    path.write_text("\n".join([header, ",".join(cells), *others]) + "\n")


def _column(demo: Processes) -> str:
    header = rows(demo, "passive-1").read_text().splitlines()[0]
    return next(name for name in header.split(",") if name != "id")


def open_secret(demo: Processes) -> None:
    path = demo.state / "passive-1" / "secrets" / "test-run.secret"
    path.parent.mkdir(parents=True)
    path.write_text("00" * 48 + "\n")
    path.chmod(0o640)


# name -> (process, how it is spoilt, words the operator must see)
WRONG = {
    "unknown loss": (
        COORDINATOR,
        lambda d: edit(d, "manifest", 'name = "logistic"', 'name = "hinges"'),
        ("loss.name", "'logistic'"),
    ),
    "negative epsilon": (
        COORDINATOR,
        lambda d: edit(d, "manifest", "epsilon = 1.0", "epsilon = -1.0"),
        ("budget.epsilon", "greater than 0"),
    ),
    "wrong guarantee": (
        COORDINATOR,
        lambda d: edit(d, "manifest", 'guarantee = "sound"', 'guarantee = "best"'),
        ("guarantee", "'sound'"),
    ),
    "unknown field": (
        "passive-1",
        lambda d: edit(d, "passive-1", "party = ", "colour = 3\nparty = "),
        ("colour", "unknown field; remove it or check its spelling"),
    ),
    "missing field": (
        "passive-1",
        lambda d: edit(d, "passive-1", line(d, "passive-1", "broker_curve_key"), ""),
        ("broker_curve_key", "is missing; add it"),
    ),
    "missing settings file": (
        "passive-1",
        lambda d: d.demo.settings("passive-1").unlink(),
        ("passive-1.toml", "give the path of a party's settings"),
    ),
    "missing data file": (
        "passive-1",
        lambda d: rows(d, "passive-1").unlink(),
        ("passive-1_train.csv",),
    ),
    "missing policy": (
        "passive-1",
        lambda d: d.demo.settings("policy").unlink(),
        ("policy.toml", "a policy, such as policy.toml"),
    ),
    "missing manifest": (
        COORDINATOR,
        lambda d: d.demo.settings("manifest").unlink(),
        ("manifest.toml", "a manifest, such as manifest.toml"),
    ),
    "not TOML": (
        "passive-1",
        lambda d: d.demo.settings("passive-1").write_text("party = = 3"),
        ("passive-1.toml", "is not TOML"),
    ),
    "a label on a passive party": (
        "passive-1",
        lambda d: edit(d, "passive-1", "[data]", '[data]\nlabel_column = "y"'),
        ("data.label_column: a passive party has no label; remove the field",),
    ),
    "no label on the active party": (
        "active",
        lambda d: edit(d, "active", line(d, "active", "label_column"), ""),
        ("data.label_column", "must name its label column"),
    ),
    "a column that is not there": (
        "passive-1",
        lambda d: edit(
            d, "passive-1", 'id_columns = [\n    "id",', 'id_columns = [\n    "number",'
        ),
        ("number",),
    ),
    "NaN in the data": (
        "passive-1",
        lambda d: set_cell(rows(d, "passive-1"), _column(d), "nan"),
        ("column",),
    ),
    "text in a number's place": (
        "passive-1",
        lambda d: set_cell(rows(d, "passive-1"), _column(d), "seventeen"),
        ("column",),
    ),
    "keys that others can read": (
        "passive-1",
        lambda d: (d.demo.folder / "keys" / "passive-1" / "sign.key").chmod(0o644),
        ("sign.key", "can be read by others: chmod 600"),
    ),
    "no keys": (
        "passive-1",
        lambda d: (d.demo.folder / "keys" / "passive-1" / "curve.key").unlink(),
        ("curve.key", "see 'hdpvfl keys'"),
    ),
    "a broken key": (
        COORDINATOR,
        lambda d: (d.demo.folder / "keys" / COORDINATOR / "sign.key").write_text("abc\n"),
        ("sign.key",),
    ),
    "a secret that others can read": (
        "passive-1",
        open_secret,
        ("test-run.secret", "chmod 600"),
    ),
    "a member missing at the broker": (
        COORDINATOR,
        lambda d: edit(d, COORDINATOR, 'party = "passive-2"', 'party = "passive-3"'),
        ("members", "passive-2", "passive-3"),
    ),
    "an endpoint that is none": (
        "passive-1",
        lambda d: edit(d, "passive-1", "tcp://127.0.0.1", "ipc://127.0.0.1"),
        ("broker",),
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_setting_stops_the_process_and_names_the_remedy(demo, capsys, name):
    process, spoil, words = WRONG[name]
    spoil(demo)
    code, said = run(demo, process, capsys)
    assert code == 2, said
    for word in words:
        assert word in said
    assert "Traceback" not in said


def test_data_values_do_not_show_in_an_error(demo, capsys):
    set_cell(rows(demo, "passive-1"), _column(demo), "31337.5x")
    _, said = run(demo, "passive-1", capsys)
    assert "31337" not in said


def test_a_port_in_use_is_named(demo, capsys):
    endpoint = line(demo, COORDINATOR, "bind").split('"')[1]
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", int(endpoint.rsplit(":", 1)[1])))
        taken.listen()
        code, said = run(demo, COORDINATOR, capsys)
    assert code == 2
    assert "bind = " in said
    assert "stop what uses the port, or choose another" in said


def test_a_second_process_on_a_ledger_is_refused(demo, capsys):
    ledger = Ledger.open(demo.state / "passive-1" / "ledger.db", "passive-1")
    try:
        other = subprocess.run(
            [sys.executable, "-m", "parties", str(demo.demo.settings("passive-1"))],
            capture_output=True,
            text=True,
            env=environment(),
            cwd=ROOT,
            timeout=100,
            check=False,
        )
    finally:
        ledger.close_file()
    assert other.returncode == 2, other.stderr
    assert "in use by another process; stop that one" in other.stderr


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--loss", "hinges"), ("loss", "logistic")),
        (("--epsilon", "-1"), ("epsilon", "greater than 0")),
        (("--epsilon", "nan"), ("epsilon", "finite")),
        (("--delta", "2"), ("delta",)),
        (("--guarantee", "best"), ("guarantee", "sound")),
        (("--penalty", "l7"), ("penalty", "elastic_net")),
        (("--passives", "21"), ("passives", "1 to 20")),
        (("--passives", "0"), ("passives", "1 to 20")),
        (("--passives", "300"), ("passives", "1 to 20")),
        (("--run", "a/b"), ("run",)),
        (("--port", "99999"), ("port", "between 1 and 65535")),
        (("--seed", "-1"), ("seed",)),
        (("--epochs", "0"), ("epochs",)),
        (("--epochs", "900000", "--batch", "1"), ("method.epochs", "larger batches")),
        (("--dataset", "unheard-of"), ("unheard-of", "breast")),
        (("--resume", "unheard-of"), ("unheard-of", "start without --resume")),
    ],
)
def test_a_wrong_option_of_the_demo_writes_nothing(tmp_path, capsys, options, words):
    """Bug: some options ended in a traceback, others left the folder of a run behind."""
    assert cli.main(["up", "--dataset", "breast", "--out", str(tmp_path), *options]) == 2
    said = capsys.readouterr().err
    for word in words:
        assert word in said
    assert not list(tmp_path.glob("runs/*"))


def test_a_port_in_use_stops_the_demo(tmp_path, capsys):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert cli.main(["up", "--out", str(tmp_path), "--port", str(port)]) == 2
    assert f"port {port} is in use" in capsys.readouterr().err
    assert not list(tmp_path.glob("runs/*"))
