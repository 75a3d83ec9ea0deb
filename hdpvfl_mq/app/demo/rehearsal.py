"""A whole federation in this process: production roles, journals and ledgers, kept in memory.

It owns how tables and a manifest become nodes for the simulation; experiments and tests use it.
Parties send, sign, journal and book every message as in production; only the network is simulated.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from nacl.signing import SigningKey

from broker.coordinator import Coordinator
from broker.router import Router
from hdpvfl_mq.arrays.unreleased import FloatVector
from hdpvfl_mq.data.preprocess import PreparedData
from hdpvfl_mq.journal.store import Journal
from hdpvfl_mq.node.node import Node
from hdpvfl_mq.node.ports import Contact, Identity
from hdpvfl_mq.privacy.ledger_secret import LedgerSecret
from hdpvfl_mq.privacy.ledger_store import Ledger
from hdpvfl_mq.privacy.scored_people import ScoredPeople
from hdpvfl_mq.psi import NormalisedIds, normalise
from hdpvfl_mq.runtime.simulation import Faults, Operator, Simulation
from hdpvfl_mq.wire.codec import model_digest
from parties.assets import Assets, TrainedModel
from parties.party import Party
from parties.process.ledger_book import LedgerBook, recognise
from parties.process.ledger_file import open_ledger
from parties.rounds.shares_fit import PrivateActive
from schemas.alignment import KeptAlignment
from schemas.config import RunManifest
from schemas.ids import COORDINATOR, PartyId, RoleName
from schemas.policy import PartyPolicy
from schemas.privacy import Budget, Release


def open_policy(manifest: RunManifest, dataset: str = "rehearsal") -> PartyPolicy:
    """A policy that allows this run; only for data that need no protection."""
    delta = manifest.budget.delta if manifest.budget else 1e-2
    return PartyPolicy(
        dataset=dataset,
        lifetime=Budget(epsilon=1000.0, delta=delta),
        run_epsilon_max=1000.0,
        guarantees=("sound", "paper", "none"),
        rows_min=1,
        learned_constants=True,
        disclosed_rows_max=10**9,
    )


class Rehearsal:
    """Keys, disks and data of a federation, which outlive the nodes that are started on them."""

    def __init__(
        self,
        manifest: RunManifest,
        data: Mapping[PartyId, PreparedData],
        *,
        policies: Mapping[PartyId, PartyPolicy] | None = None,
        secret: bytes = b"rehearsal",
        ledger_files: Mapping[PartyId, Path] | None = None,
    ) -> None:
        """Ledgers live in memory and end with the rehearsal, except those that have a file."""
        self.manifest, self.data = manifest, data
        self._ledger_files = ledger_files or {}
        self.policies = policies or {}
        self.parties = manifest.parties
        names = (*self.parties, COORDINATOR)
        self._secret = secret
        self.keys = {name: SigningKey(self.secret(name, b"sign")) for name in names}
        self.roles: dict[PartyId, RoleName] = dict.fromkeys(manifest.passive_parties, "passive")
        self.roles |= {manifest.active_party: "active", COORDINATOR: "coordinator"}
        self.journals = {n: Journal(":memory:", run=manifest.run, party=n) for n in names}
        self.ledgers = {p: sqlite3.connect(":memory:", isolation_level=None) for p in self.parties}
        self.scored = {p: sqlite3.connect(":memory:", isolation_level=None) for p in self.parties}
        self.outcomes: dict[PartyId, str] = {}
        self.kept: dict[PartyId, tuple[KeptAlignment, ...]] = {}  # from an earlier rehearsal
        self.kept_grams: dict[PartyId, Release] = {}  # of an earlier rehearsal
        self.models: dict[PartyId, TrainedModel] = {}  # of an earlier rehearsal, to predict with
        self.operators: dict[PartyId, Operator] = {}  # operators that give inputs to their nodes
        self.speaks: dict[PartyId, int] = {}  # versions of parties that speak more than the run's
        self.books: dict[PartyId, LedgerBook] = {}  # of the nodes that run now
        self._ids: dict[tuple[int, ...], tuple[tuple[Any, ...], NormalisedIds]] = {}

    def secret(self, party: PartyId, purpose: bytes) -> bytes:
        """A fixed secret of 32 bytes, so that a rehearsal can be repeated bit for bit."""
        return hashlib.blake2b(party.encode() + purpose, key=self._secret, digest_size=32).digest()

    def assets(self, party: PartyId) -> Assets:
        """A party's keys, data and settings."""
        rules, data = self.manifest.alignment.ids, self.data[party]
        return Assets(
            party=party,
            role="active" if party == self.manifest.active_party else "passive",
            run=self.manifest.run,
            policy=self.policies.get(party) or open_policy(self.manifest),
            data=data,
            ids=self._normalised(data.ids),
            id_rules=rules,
            secret=self.secret(party, b"noise"),
            salt=self.secret(party, b"salt")[:16],
            signing_key=self.keys[party],
            verify_keys={p: key.verify_key for p, key in self.keys.items()},
            numeric_profile="rehearsal",
            kept=self.kept.get(party, ()),
            kept_gram=self.kept_grams.get(party),
            model=self.models.get(party),
            wire=self.manifest.wire,
            speaks=self.speaks.get(party, self.manifest.wire),
        )

    def _normalised(self, columns: tuple[Any, ...]) -> NormalisedIds:
        """The ids of a table; parties that share its columns share the result."""
        key = tuple(id(column) for column in columns)
        if key not in self._ids:  # the columns are kept, so no other column gets their identity
            self._ids[key] = columns, normalise(columns, self.manifest.alignment.ids)
        return self._ids[key][1]

    def contacts(self, party: PartyId) -> dict[PartyId, Contact]:
        """Role and key of every other member."""
        return {
            p: Contact(self.roles[p], key.verify_key, self.manifest.wire)
            for p, key in self.keys.items()
            if p != party
        }

    def node(self, party: PartyId) -> Node:
        """A party's node, as a process started now would open it."""
        wire = self.manifest.wire
        identity = Identity(
            party, self.roles[party], self.manifest.run, self.keys[party], versions=(wire, wire)
        )
        contacts = self.contacts(party)
        journal = self.journals[party]
        if party == COORDINATOR:
            role = Coordinator(self.manifest, model_digest(self.manifest))
            return Node(role, identity, contacts, journal=journal)
        own = self.assets(party)
        ledger = self._ledger(party)
        recognise(ledger, own)
        book = self.books[party] = LedgerBook(
            ledger, own.policy, self.manifest.run, own.data.fingerprint, peers=self.parties
        )
        node = Node(Party(own), identity, contacts, journal=journal, ledger=book)
        book.attach(own, node)
        return node

    def _ledger(self, party: PartyId) -> Ledger:
        if party not in self._ledger_files:
            secret = LedgerSecret(self.secret(party, b"ledger"))
            ledger = Ledger(self.ledgers[party], party, secret)
            ledger.people = ScoredPeople(self.scored[party], party, secret)
            return ledger
        file = self._ledger_files[party]
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        return open_ledger(file, party)

    def router(self) -> Router:
        """The broker's router, as a process started now would open it."""
        members = {p: k.verify_key for p, k in self.keys.items() if p != COORDINATOR}
        return Router(self.manifest.run, members)

    def simulate(self, *, seed: int = 0, faults: Faults | None = None) -> Simulation:
        """Run the federation to its end."""
        makers = {p: partial(self.node, p) for p in (COORDINATOR, *self.parties)}
        simulation = Simulation(
            makers, self.router, seed=seed, faults=faults, operators=self.operators
        )
        self.outcomes = simulation.run()
        return simulation

    def weights(self, simulation: Simulation) -> dict[PartyId, FloatVector]:
        """Every party's final weights."""
        closed = {p: simulation.nodes[p].state for p in self.parties}
        return {p: state.trained.rounds.final_weights for p, state in closed.items()}

    def coefficients(self, simulation: Simulation) -> dict[PartyId, float]:
        """The active party's coefficients for its partners' scores; empty after descent."""
        rounds = simulation.nodes[self.manifest.active_party].state.trained.rounds
        return rounds.coefficients if isinstance(rounds, PrivateActive) else {}

    def spent(self) -> dict[PartyId, tuple[Any, ...]]:
        """All ledger entries of every party."""
        return {p: tuple(Ledger(db, p).entries()) for p, db in self.ledgers.items()}
