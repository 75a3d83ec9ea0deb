"""A small federation for tests: real roles, journals and ledgers, kept in memory."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass, field

import numpy as np
from nacl.signing import SigningKey

from broker.coordinator import Coordinator
from broker.router import Router
from hdpvfl_mq.data.preprocess import prepare
from hdpvfl_mq.data.tables import Table
from hdpvfl_mq.journal.store import Journal
from hdpvfl_mq.node import Node
from hdpvfl_mq.ports import Contact, Identity
from hdpvfl_mq.privacy.ledger_store import Ledger
from hdpvfl_mq.psi import normalise
from hdpvfl_mq.runtime.simulation import Faults, Simulation
from hdpvfl_mq.wire.codec import model_digest
from parties.accounts import Accounts
from parties.active import Active
from parties.passive import Passive
from parties.possession import Possession, id_profile
from schemas.config import ActiveSide, AlignmentSpec, IdRules, PartyPolicy, PassiveSide, RunManifest
from schemas.data import DataSettings
from schemas.ids import COORDINATOR
from schemas.privacy import Budget


def manifest(**changes) -> RunManifest:
    """Two passive parties, sound, small and quick."""
    settings = {
        "run": "test-run",
        "active_party": "bank",
        "passive_parties": ("shop", "telco"),
        "budget": Budget(epsilon=1.0, delta=0.01),
        "epochs": 3,
        "batch_rows": 40,
        "seed": 7,
        "active": ActiveSide(step_size=2.0, weight_norm=5.0, local_steps=2),
        "passive": PassiveSide(step_size=2.0, weight_norm=2.0, received_clip=1.0),
        "alignment": AlignmentSpec(ids=IdRules(kind="integer"), rows_min=10),
    }
    return RunManifest(**{**settings, **changes})


def policy(**changes) -> PartyPolicy:
    """A policy that allows everything the tests do."""
    settings = {
        "dataset": "people",
        "lifetime": Budget(epsilon=50.0, delta=0.01),
        "run_epsilon_max": 50.0,
        "guarantees": ("sound", "paper", "none"),
        "rows_min": 10,
        "learned_constants": True,
    }
    return PartyPolicy(**{**settings, **changes})


def tables(rows: int = 120, seed: int = 3, columns: int = 3) -> dict[str, Table]:
    """Three parties' tables over almost the same people; the label depends on all columns."""
    dice = np.random.default_rng(seed)
    ids = np.arange(rows)
    X = dice.normal(size=(rows, 3 * columns))
    y = (X @ dice.normal(size=3 * columns) + dice.normal(size=rows) > 0).astype(float)
    result = {}
    for number, name in enumerate(("bank", "shop", "telco")):
        keep = np.delete(dice.permutation(rows), number)
        part = {f"{name}_{c}": X[keep, number * columns + c] for c in range(columns)}
        label = {"y": y[keep]} if name == "bank" else {}
        result[name] = Table.of({"id": ids[keep], **label, **part})
    return result


@dataclass
class Federation:
    """Keys, disks and data of a federation; nodes come and go, these stay."""

    manifest: RunManifest = field(default_factory=manifest)
    tables: dict[str, Table] = field(default_factory=tables)
    policies: dict[str, PartyPolicy] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.parties = (self.manifest.active_party, *self.manifest.passive_parties)
        names = (*self.parties, COORDINATOR)
        self.keys = {p: SigningKey(bytes([n + 1]) * 32) for n, p in enumerate(names)}
        self.roles = dict.fromkeys(self.manifest.passive_parties, "passive")
        self.roles |= {self.manifest.active_party: "active", COORDINATOR: "coordinator"}
        self.journals = {p: Journal(":memory:", run=self.manifest.run, party=p) for p in names}
        self.ledgers = {p: sqlite3.connect(":memory:", isolation_level=None) for p in self.parties}

    def possession(self, party: str) -> Possession:
        role = self.roles[party]
        settings = DataSettings(label_column="y" if role == "active" else None)
        data = prepare(self.tables[party], settings, role=role)
        rules = self.manifest.alignment.ids
        return Possession(
            party=party,
            role=role,
            run=self.manifest.run,
            policy=self.policies.get(party, policy()),
            data=data,
            ids=normalise([c.tolist() for c in data.ids], id_profile(rules)),
            id_rules=rules,
            secret=party.encode().ljust(32, b"-"),
            salt=bytes(16),
            signing_key=self.keys[party],
            numeric_profile="tests",
        )

    def contacts(self, party: str) -> dict[str, Contact]:
        return {
            p: Contact(self.roles[p], key.verify_key) for p, key in self.keys.items() if p != party
        }

    def node(self, party: str) -> Node:
        identity = Identity(party, self.roles[party], self.manifest.run, self.keys[party])
        if party == COORDINATOR:
            role = Coordinator(self.manifest, model_digest(self.manifest))
            book = None
        else:
            own = self.possession(party)
            role = (Active if own.role == "active" else Passive)(own)
            ledger = Ledger(self.ledgers[party], party)
            book = Accounts(ledger, own.policy, self.manifest.run, own.data.fingerprint)
        return Node(role, identity, self.contacts(party), journal=self.journals[party], book=book)

    def router(self) -> Router:
        members = {p: k.verify_key for p, k in self.keys.items() if p != COORDINATOR}
        return Router(self.manifest.run, members)

    def simulate(self, *, seed: int = 0, faults: Faults | None = None) -> Simulation:
        makers = {p: (lambda p=p: self.node(p)) for p in (COORDINATOR, *self.parties)}
        simulation = Simulation(makers, self.router, seed=seed, faults=faults)
        self.outcomes = simulation.run()
        return simulation

    def weights(self, simulation: Simulation) -> dict[str, np.ndarray]:
        return {
            p: simulation.nodes[p].role.final_weights(simulation.nodes[p].state)
            for p in self.parties
        }

    def spent(self) -> dict[str, tuple]:
        return {p: tuple(Ledger(db, p).entries()) for p, db in self.ledgers.items()}
