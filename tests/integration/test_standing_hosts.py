"""A federation on hosts of its own, set up and used by its printed commands alone.

Every host is a network namespace and a folder; people copy one line each and compare words. The
quick form has one passive party and a newcomer, the slow form four and one. Three trainings and
their predictions, two at once; every service killed, a link cut and a key replaced in mid-run.
"""

from __future__ import annotations

import json
import signal
import tempfile
import time
from functools import partial
from pathlib import Path

import pytest

from hdpvfl_mq.runtime.settings import dump_settings, fields_of, load_settings
from schemas.config import RunManifest
from schemas.methods import ActiveSide, Descent, PassiveSide
from schemas.policy import PartyPolicy
from tests.integration.forked import Served, Started
from tests.integration.networks import Network, type_on
from tests.integration.processes import environment, wait_for
from tests.integration.test_joining import Host, write_rows
from tests.integration.test_namespaces import network_or_skip

PORT = 7700
ROUNDS = 300


class FarHost(Host):
    """A host in a network of its own; counts what is typed on it."""

    def __init__(self, folder: Path, network: Network, name: str) -> None:
        super().__init__(folder)
        self.name, self.network, self.typed = name, network, 0

    def _start(self, *words: str, out: Path, err: Path | None = None) -> Started:
        program = partial(type_on, self.network, self.name, words)
        return Served(program, out=out, err=err, cwd=self.folder, environment=environment())

    def ask(self, *words: str) -> tuple[int, str, str]:
        with tempfile.TemporaryDirectory() as folder:
            out, err = Path(folder) / "out", Path(folder) / "err"
            code = self._start(*words, out=out, err=err).wait(120)
            return code, out.read_text(), err.read_text()

    def type(self, *words: str, code: int = 0) -> str:
        self.typed += words[0] != "status"
        found, out, err = self.ask(*words)
        assert found == code, (self.name, words, out, err)
        return out.strip() if code == 0 else err.strip()

    def serve(self, word: str) -> None:
        self.typed += not self.services
        self.services.append(self._start(word, out=self.folder / "service.log"))
        self.wait_for_service(f"hdpvfl {word} at {self.name}")

    def kill(self) -> None:
        self.services[-1].send_signal(signal.SIGKILL)
        self.services[-1].wait()


class Federation:
    """Everybody's keyboards."""

    def __init__(self, folder: Path, network: Network) -> None:
        self.hosts = {name: FarHost(folder / name, network, name) for name in network.hosts}
        self.broker, self.bank = self.hosts["broker"], self.hosts["bank"]
        self.members: list[str] = []
        self.broker.type("init", "spring", "--bind", f"tcp://{network.address('broker')}:{PORT}")
        self.broker.serve("broker")

    def join(self, name: str) -> None:
        """Two commands and one copied line at the newcomer; words are compared by everybody."""
        host, is_active = self.hosts[name], name == "bank"
        write_rows(host, 2 + len(self.members), label=is_active)
        line = self.broker.type("invite", name, "--role", "active" if is_active else "passive")
        more = ("--label", "bought") if is_active else ()
        before = host.typed
        host.type("join", line, "--data", "rows.csv", "--id", "customer", *more)
        self.allow(host)
        host.serve("party")
        assert host.typed - before == 2
        for other in self.members:
            words = self.hosts[other].words_for(name)
            assert words == host.words_for(other)
            self.hosts[other].type("confirm", name, *words)
            host.type("confirm", other, *words)
        self.members.append(name)

    @staticmethod
    def allow(host: FarHost) -> None:
        """Look at the policy, as `join` says: take part without asking, also without privacy."""
        path = host.folder / "policy.toml"
        policy = fields_of(load_settings(PartyPolicy, path))
        policy |= {"proposals": "accept", "guarantees": ("sound", "none")}
        policy |= {"scoring": "disclosed", "queries_max": 10, "rows_min": 2}
        path.write_text(dump_settings(PartyPolicy(**policy)))

    def propose(self, run: str, *options: str) -> None:
        self.bank.type("train", "--rows-min", "100", "--run", run, "--no-wait", *options)

    def runs(self, name: str) -> dict:
        return self.hosts[name].asked("runs").get("runs", {})

    def ended(self, run: str, *names: str) -> None:
        for name in names or self.members:
            wait_for(lambda n=name: self.runs(n).get(run, {}).get("outcome"), f"{run} at {name}")
            told = json.loads(self.hosts[name].ask("runs", "--json")[1])["runs"]
            assert told[run]["outcome"] == "completed", told[run]

    def model(self, name: str, run: str) -> list[float]:
        path = self.hosts[name].folder / "runs" / run / name / "model.json"
        return json.loads(path.read_text())["weights"]

    def predict(self, run: str) -> None:
        """One command at the active party scores its file with all partners."""
        self.bank.type("predict", run, "--rows", "rows.csv", "-o", f"{run}.csv")
        assert len((self.bank.folder / f"{run}.csv").read_text().splitlines()) > 100

    def spent(self) -> dict[str, float]:
        """What every passive party has spent."""
        return {n: self.hosts[n].status()["budget"]["epsilon_spent"] for n in self.members[1:]}

    def booked(self, name: str, run: str) -> list[str]:
        """What a party's ledger holds of a run, without names and hashes."""
        lines = self.hosts[name].type("ledger", "export", f"state/{name}/ledger.db", "--run", run)
        hashes = ("fingerprint", "digest")
        entries = [json.loads(line).get("entry", {}) for line in lines.splitlines()]
        return [
            json.dumps({k: v for k, v in entry.items() if k not in hashes}).replace(run, "RUN")
            for entry in entries
            if entry.get("run") == run
        ]

    def long_run(self) -> None:
        """A manifest of many rounds without noise, so that two runs can be compared."""
        rows = ("--rows", "150", "--active", "bank", "--with", ",".join(self.members[1:]))
        self.bank.type("plan", *rows, "--write", "long.toml")
        path = self.bank.folder / "long.toml"
        fields = fields_of(load_settings(RunManifest, path)) | {
            "guarantee": "none",
            "budget": None,
            "method": Descent(
                epochs=ROUNDS,
                batch_rows=10**9,
                active=ActiveSide(step_size=0.1, weight_norm=1e6),
                passive=PassiveSide(step_size=0.1, weight_norm=1e6),
            ),
        }
        fields["alignment"] = type(fields["alignment"])(rows_min=100)
        path.write_text(dump_settings(RunManifest(**fields)))


@pytest.mark.parametrize(
    ("passives", "cut_s"), [(1, 3.0), pytest.param(4, 20.0, marks=pytest.mark.slow)]
)
def test_a_federation_stands_on_printed_commands_alone(tmp_path, passives, cut_s):
    names = [f"shop{n}" for n in range(1, passives + 1)]
    with network_or_skip(("broker", "bank", *names, "late")) as network:
        federation = Federation(tmp_path, network)
        try:
            for name in ("bank", *names):
                federation.join(name)
            live(federation, network, names, cut_s)
        finally:
            for host in federation.hosts.values():
                host.end()


def live(federation: Federation, network: Network, names: list[str], cut_s: float) -> None:
    # In turn, then two at once, each with its predictions.
    federation.propose("one", "--epsilon", "0.5")
    federation.ended("one")
    federation.predict("one")
    federation.propose("two", "--epsilon", "0.5")
    federation.propose("three", "--epsilon", "0.5", "--seed", "7")
    for run in ("two", "three"):
        federation.ended(run)
    if len(names) > 1:
        for run in ("two", "three"):
            federation.predict(run)
    assert len({round(each, 6) for each in federation.spent().values()}) == 1, federation.spent()
    rough(federation, network, names, cut_s)
    # One joins, one leaves; nobody else restarts anything.
    federation.join("late")
    federation.broker.type("remove", names[0])
    gone = federation.hosts[names[0]]
    wait_for(lambda: names[0] not in federation.bank.asked("status")["members"], "the news")
    federation.members.remove(names[0])
    others = ",".join(federation.members[1:])
    federation.propose("four", "--epsilon", "0.5", "--with", others)
    federation.ended("four")
    assert "no member this party knows" in federation.bank.type(
        *("train", "--with", names[0], "--no-wait", "--rows-min", "100"), code=2
    )
    wait_for(lambda: "was removed" in gone.asked("status")["trouble"], "what keeps it out")


def rough(federation: Federation, network: Network, names: list[str], cut_s: float) -> None:
    """The same run twice: calm; and with every service killed, a key replaced, a link cut."""
    federation.long_run()
    federation.propose("calm", "--manifest", "long.toml")
    federation.ended("calm")
    federation.propose("rough", "--manifest", "long.toml")
    wait_for(lambda: federation.runs("bank").get("rough", {}).get("round", 0) > 1, "rounds")
    assert "the broker has them" in federation.hosts[names[-1]].type("rotate")
    for name in ("broker", "bank", *names):
        wait_for(lambda: federation.runs("bank").get("rough", {}).get("round", 0) > 1, "rounds")
        federation.hosts[name].kill()
        federation.hosts[name].serve("broker" if name == "broker" else "party")
    network.link(names[0], "down")
    time.sleep(cut_s)
    network.link(names[0], "up")
    federation.ended("rough")
    for name in federation.members:
        assert federation.model(name, "rough") == federation.model(name, "calm")
        assert federation.booked(name, "rough") == federation.booked(name, "calm") != []
