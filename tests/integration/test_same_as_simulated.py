"""With fixed secret seeds, processes over sockets and nodes in memory end with the same bits."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from nacl.signing import VerifyKey

from broker.coordinator import Coordinator
from broker.router import Router
from hdpvfl_mq.engine.threads import pin_threads
from hdpvfl_mq.journal.store import Journal
from hdpvfl_mq.node.node import Node
from hdpvfl_mq.node.ports import Contact, Identity
from hdpvfl_mq.runtime.keys import load_keys
from hdpvfl_mq.runtime.settings import load_settings
from hdpvfl_mq.runtime.simulation import Faults, Simulation
from hdpvfl_mq.wire.codec import model_digest
from parties.process.build import build_node, load_assets
from schemas.config import BrokerSettings, PartySettings, RunManifest
from schemas.ids import COORDINATOR
from tests.integration.processes import Processes, fields_of, fix_secrets, processes


class Simulated:
    """The same settings files, keys and secrets; other folders for journals and ledgers."""

    def __init__(self, real: Processes, folder: Path) -> None:
        self.real, self.folder = real, folder
        fix_secrets(real.demo, folder / "state")
        self.accounts = {}
        self.broker = load_settings(BrokerSettings, real.demo.settings(COORDINATOR))
        self.manifest = load_settings(RunManifest, Path(self.broker.manifest))
        self.verify = {m.party: VerifyKey(bytes.fromhex(m.verify_key)) for m in self.broker.members}

    def party(self, name: str) -> Node:
        settings = load_settings(PartySettings, self.real.demo.settings(name))
        here = {"runs": str(self.folder / "runs"), "state": str(self.folder / "state")}
        settings = PartySettings(**{**fields_of(settings), **here})
        keys = load_keys(Path(settings.keys))
        node, self.accounts[name] = build_node(settings, load_assets(settings, keys), keys)
        return node

    def coordinator(self) -> Node:
        keys = load_keys(Path(self.broker.keys))
        return Node(
            Coordinator(self.manifest, model_digest(self.manifest)),
            Identity(COORDINATOR, "coordinator", self.manifest.run, keys.signing),
            {m.party: Contact(m.role, self.verify[m.party]) for m in self.broker.members},
            journal=Journal(":memory:", run=self.manifest.run, party=COORDINATOR),
        )

    def run(self) -> tuple[dict, dict]:
        """Weights and ledger entries of every party."""
        makers = {p: (lambda p=p: self.party(p)) for p in self.real.demo.parties}
        makers[COORDINATOR] = self.coordinator
        faults = Faults(loss=0.1, copies=0.1, delay_s=0.05)
        simulation = Simulation(
            makers, lambda: Router(self.manifest.run, self.verify), seed=1, faults=faults
        )
        outcomes = simulation.run()
        assert set(outcomes.values()) == {"completed"}
        weights, entries = {}, {}
        for party in self.real.demo.parties:
            node = simulation.nodes[party]
            weights[party] = node.state.trained.rounds.final_weights.tolist()
            self.accounts[party].close()  # as the process does when its run is over
            entries[party] = list(self.accounts[party]._ledger.entries())
        return weights, entries


CASES = {
    "one round": {},
    "descent": {"epochs": 3, "batch": 100},
    "paper": {"guarantee": "paper", "epochs": 2},
    "none": {"guarantee": "none", "epochs": 20},
}


@pytest.mark.parametrize("case", CASES)
def test_processes_and_simulation_end_with_the_same_weights_and_ledgers(tmp_path, case):
    _threads = pin_threads()
    with processes(tmp_path / "real", secrets=True, **CASES[case]) as real:
        real.start()
        real.end()
        weights, entries = Simulated(real, tmp_path / "simulated").run()
        for party in real.demo.parties:
            model = json.loads((real.demo.folder / party / "model.json").read_text())
            assert model["weights"] == weights[party], party  # JSON keeps every bit of a float
            assert any(model["weights"])
            assert real.entries(party) == entries[party], party
