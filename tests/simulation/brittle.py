"""A federation whose processes may die in a commit, before or after the journal is written."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from hdpvfl_mq.data.tables import Table
from hdpvfl_mq.journal.store import Journal
from hdpvfl_mq.node.node import Node
from hdpvfl_mq.runtime.simulation import Faults, Killed, Simulation
from tests.federation import Federation, manifest

UNKIND = Faults(loss=0.2, copies=0.2, delay_s=0.3, crashes=5, crash_window_s=12.0)


class BrittleJournal:
    """A journal in front of which, or behind which, the process may be killed."""

    def __init__(self, journal: Journal, party: str, dice: random.Random, risk: float) -> None:
        self._journal, self._party, self._dice, self._risk = journal, party, dice, risk
        self.records = journal.records

    def commit(self, records: Sequence[tuple[int, bytes, bytes]]) -> None:
        if self._dice.random() < self._risk:  # the ledger is booked, the journal knows nothing
            raise Killed(self._party)
        self._journal.commit(records)
        if self._dice.random() < self._risk:  # all is on disk, nothing was sent
            raise Killed(self._party)


@dataclass
class BrittleFederation(Federation):
    """Commits that kill, with a fixed risk, from one seed."""

    risk: float = 0.01
    seed: int = 0
    dice: random.Random = field(init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.dice = random.Random(f"commits {self.seed}")

    def node(self, party: str) -> Node:
        node = super().node(party)
        brittle = BrittleJournal(self.journals[party], party, self.dice, self.risk)
        return Node(
            node.role, node.identity, self.contacts(party), journal=brittle, ledger=node.ledger
        )

    def disturbed(self, faults: Faults = UNKIND) -> Simulation:
        return self.simulate(seed=self.seed, faults=faults)


def many_tables(passives: int, rows: int = 60, columns: int = 2) -> dict[str, Table]:
    """Tables of a bank and any number of passive parties over the same people."""
    dice = np.random.default_rng(passives)
    ids = np.arange(rows)
    result = {}
    for name in ("bank", *passive_names(passives)):
        keep = dice.permutation(rows)
        part = {f"{name}_{c}": dice.normal(size=rows) for c in range(columns)}
        label = {"y": (dice.random(rows) > 0.5).astype(float)} if name == "bank" else {}
        result[name] = Table.of({"id": ids[keep], **label, **part})
    return result


def passive_names(count: int) -> tuple[str, ...]:
    return tuple(f"p{number}" for number in range(1, count + 1))


def sized_manifest(passives: int, **changes):
    return manifest(passive_parties=passive_names(passives), **changes)
