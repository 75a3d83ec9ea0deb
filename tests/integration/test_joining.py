"""A federation set up by its printed commands alone; and those who should not get in."""

from __future__ import annotations

import csv
import json
import signal
import time
from pathlib import Path

import numpy as np
import pytest

from hdpvfl_mq.app.demo.prepare import free_port
from hdpvfl_mq.errors import NetworkError, RefusedError
from hdpvfl_mq.runtime import control
from hdpvfl_mq.runtime.keys import make_keys
from hdpvfl_mq.runtime.knock import knock
from hdpvfl_mq.wire.invitation import Invitation, read_line
from tests.integration.forked import Started
from tests.integration.processes import command, hdpvfl, wait_for

ROWS = 150


class Host:
    """A folder of its own, where commands are typed."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder = folder
        self.services: list[Started] = []

    def type(self, *words: str, code: int = 0) -> str:
        done = hdpvfl(*words, cwd=self.folder)
        assert done.returncode == code, (words, done.stdout, done.stderr)
        return done.stdout.strip() if code == 0 else done.stderr.strip()

    def serve(self, word: str) -> None:
        log = self.folder / "service.log"
        self.services.append(command(word, out=log, cwd=self.folder))
        self.wait_for_service(f"hdpvfl {word}")

    def wait_for_service(self, what: str) -> None:
        wait_for(lambda: self.asked("status"), what)
        self.type("status")

    def asked(self, command: str) -> dict:
        """What its service answers to a command; nothing while none runs.

        For waiting: a typed command is a new process each time.
        """
        try:
            return control.ask(self._place(), {"command": command}, what="test")
        except (NetworkError, StopIteration):
            return {}

    def _place(self) -> Path:
        return next(self.folder.glob(f"state/*/{control.NAME}")).parent

    def status(self) -> dict:
        return json.loads(self.type("status", "--json"))

    def end(self) -> None:
        for service in self.services:
            if service.poll() is None:
                service.send_signal(signal.SIGKILL)
                service.wait()

    def words_for(self, party: str) -> list[str]:
        def found() -> list[str]:
            text = self.asked("status").get("pairings", {}).get(party, "")
            return text.split("telephone: ")[1].split(";")[0].split() if "telephone" in text else []

        return wait_for(found, f"words for {party}")


def write_rows(host: Host, columns: int, *, label: bool) -> None:
    dice = np.random.default_rng(columns)
    X = dice.uniform(-1.0, 1.0, size=(ROWS, columns))
    y = (np.arange(ROWS) % 3 == 0).astype(int)
    names = ["customer", *(f"x{n}" for n in range(columns)), *(["bought"] if label else [])]
    with (host.folder / "rows.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(names)
        for n in range(ROWS):
            writer.writerow([f"c{n}", *X[n].tolist(), *([y[n]] if label else [])])


@pytest.fixture
def hosts(tmp_path):
    made = {name: Host(tmp_path / name) for name in ("broker", "bank", "shop")}
    yield made
    for host in made.values():
        host.end()


def test_a_federation_is_set_up_by_its_printed_commands(hosts):
    broker, bank, shop = hosts["broker"], hosts["bank"], hosts["shop"]
    broker.type("init", "spring", "--bind", f"tcp://127.0.0.1:{free_port()}")
    broker.serve("broker")
    write_rows(bank, 2, label=True)
    write_rows(shop, 3, label=False)
    for host, name, more in (
        (bank, "bank", ("--label", "bought")),
        (shop, "shop", ()),
    ):
        role = "active" if more else "passive"
        line = broker.type("invite", name, "--role", role)
        assert len(line) <= 200
        host.type("join", line, "--data", "rows.csv", "--id", "customer", *more)
        host.serve("party")
    # Nobody has confirmed anybody: a run is not even proposed.
    assert "nobody to train with" in bank.type("train", code=2)
    words = bank.words_for("shop")
    assert words == shop.words_for("bank")
    assert "not the words" in bank.type("confirm", "shop", "baba", "baba", "baba", code=5)
    bank.type("confirm", "shop", *words)
    shop.type("confirm", "bank", *words)
    assert bank.status()["disputes"] == shop.status()["disputes"] == []
    proposed = json.loads(bank.type("train", "--rows-min", "100", "--no-wait", "--json"))["run"]
    wait_for(lambda: proposed in shop.type("requests"), "the request")
    shop.type("approve", proposed)
    wait_for(lambda: "completed" in bank.type("runs"), "the end of the run")
    wait_for(lambda: "completed" in shop.type("runs"), "the end of the run")
    model = json.loads((shop.folder / "runs" / proposed / "shop" / "model.json").read_text())
    assert any(model["weights"])
    assert shop.status()["budget"]["epsilon_spent"] > 0.9
    shop.type("ledger", "verify", "state/shop/ledger.db")
    # A member audits its own journal with nothing but what is in its folder.
    assert "FOUND" not in shop.type("audit", proposed)
    assert "shop" in shop.type("ledger", "show", "state/shop/ledger.db")
    # A refusal and a stop reach the other side with their reason.
    bank.type("train", "--run", "no", "--rows-min", "100", "--no-wait")
    wait_for(lambda: "no:" in shop.type("requests"), "the request")
    shop.type("refuse", "no", "--reason", "not this month")
    wait_for(lambda: "shop: not this month" in bank.type("runs"), "the refusal")
    bank.type("train", "--run", "stopped", "--rows-min", "100", "--no-wait")
    wait_for(lambda: "stopped:" in shop.type("requests"), "the request")
    bank.type("stop", "stopped")
    wait_for(lambda: "bank: its operator stopped it" in shop.type("runs"), "the stop")
    # One that has left is known no more, and cannot come back with the same line.
    broker.type("remove", "shop")
    wait_for(lambda: "shop" not in bank.asked("status")["members"], "the news")


async def test_a_line_lets_one_newcomer_in_once(hosts, tmp_path):
    broker = hosts["broker"]
    broker.type("init", "spring", "--bind", f"tcp://127.0.0.1:{free_port()}")
    broker.serve("broker")
    invitation = read_line(broker.type("invite", "shop"))
    keys = [make_keys(tmp_path / f"keys-{n}") for n in range(3)]
    guessed = Invitation(**{**vars(invitation), "secret": bytes(16)})
    with pytest.raises(RefusedError, match="secret is wrong"):
        await knock(guessed, keys[0])
    with pytest.raises(RefusedError, match="no such federation"):
        await knock(Invitation(**{**vars(invitation), "federation": "autumn"}), keys[0])
    with pytest.raises(RefusedError, match="no invitation is open"):
        await knock(Invitation(**{**vars(invitation), "party": "telco"}), keys[0])
    await knock(invitation, keys[1])
    broker.type("invite", "telco")  # the lobby is open again, for another name
    with pytest.raises(RefusedError, match="no invitation is open for this name"):
        await knock(invitation, keys[2])
    assert broker.status()["federations"]["spring"]["members"] == {"shop": "passive"}
    # Three wrong guesses burn a line.
    line = read_line(broker.type("invite", "telco"))
    for number in range(3):
        with pytest.raises(RefusedError, match="secret is wrong"):
            await knock(Invitation(**{**vars(line), "secret": bytes([number]) * 16}), keys[2])
    broker.type("invite", "other")
    with pytest.raises(RefusedError, match="burnt"):
        await knock(line, keys[2])
    expired = read_line(broker.type("invite", "late", "--hours", "0.000001"))
    time.sleep(1.1)
    with pytest.raises(RefusedError, match="expired"):
        await knock(expired, keys[2])
