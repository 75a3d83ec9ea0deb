"""A small federation for tests: two passive parties, synthetic people, real roles."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from hdpvfl_mq.app.demo.rehearsal import Rehearsal
from hdpvfl_mq.data.preprocess import PreparedData, prepare
from hdpvfl_mq.data.tables import Table
from hdpvfl_mq.glm.families import FAMILIES
from hdpvfl_mq.node.node import Node
from schemas.config import AlignmentSpec, IdRules, RunManifest
from schemas.data import DataSettings
from schemas.ids import PartyRole
from schemas.methods import ActiveSide, Descent, PassiveSide
from schemas.policy import PartyPolicy
from schemas.privacy import Budget


def descent(**changes) -> Descent:
    """Few rounds that are quick."""
    settings = {
        "epochs": 3,
        "batch_rows": 40,
        "active": ActiveSide(step_size=2.0, weight_norm=5.0, local_steps=2),
        "passive": PassiveSide(step_size=2.0, weight_norm=2.0, received_clip=1.0),
    }
    return Descent(**{**settings, **changes})


def manifest(**changes) -> RunManifest:
    """Two passive parties, sound, small and quick; fields of descent may be given by name."""
    method = {name: changes.pop(name) for name in Descent.model_fields if name in changes}
    settings = {
        "run": "test-run",
        "active_party": "bank",
        "passive_parties": ("shop", "telco"),
        "budget": Budget(epsilon=1.0, delta=0.01),
        "method": descent(**method),
        "seed": 7,
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


def tables(
    rows: int = 120,
    seed: int = 3,
    columns: int = 3,
    parties: tuple[str, ...] = ("bank", "shop", "telco"),
) -> dict[str, Table]:
    """Tables over almost the same people, first the active party's; y depends on all columns."""
    return dict(_tables(rows, seed, columns, parties))


@lru_cache(64)  # nobody changes a table, and hundreds of federations have the same ones
def _tables(rows: int, seed: int, columns: int, parties: tuple[str, ...]) -> dict[str, Table]:
    dice = np.random.default_rng(seed)
    ids = np.arange(rows)
    X = dice.normal(size=(rows, len(parties) * columns))
    y = (X @ dice.normal(size=X.shape[1]) + dice.normal(size=rows) > 0).astype(float)
    result = {}
    for number, name in enumerate(parties):
        keep = np.delete(dice.permutation(rows), number)
        part = {f"{name}_{c}": X[keep, number * columns + c] for c in range(columns)}
        label = {"y": y[keep]} if number == 0 else {}
        result[name] = Table.of({"id": ids[keep], **label, **part})
    return result


@lru_cache(64)
def _prepared(table: Table, settings: DataSettings, role: PartyRole) -> PreparedData:
    """Federations share what is made of a table; its numbers cannot be written."""
    data = prepare(table, settings, role=role)
    for values in (data.X, data.y, data.weights, data.offset):
        if isinstance(values, np.ndarray):
            values.flags.writeable = False
    return data


@dataclass
class Federation(Rehearsal):
    """The tables above under a manifest."""

    manifest: RunManifest = field(default_factory=manifest)
    tables: dict[str, Table] = field(default_factory=tables)
    policies: dict[str, PartyPolicy] = field(default_factory=dict)

    def __post_init__(self) -> None:
        active = self.manifest.active_party
        parties = self.manifest.parties
        data = {
            p: _prepared(self.tables[p], self.settings(p), "active" if p == active else "passive")
            for p in parties
        }
        allowed = {p: policy() for p in parties} | self.policies
        super().__init__(self.manifest, data, policies=allowed)

    def settings(self, party: str) -> DataSettings:
        """How a party's table is read."""
        if party != self.manifest.active_party:
            return DataSettings()
        kind = FAMILIES[self.manifest.loss.name].label_kind
        return DataSettings(label_column="y", label_kind=kind)


@dataclass
class LyingFederation(Federation):
    """Some parties' nodes depart from what an honest one does."""

    liars: dict[str, type[Node]] = field(default_factory=dict)

    def node(self, party: str) -> Node:
        """A party's process, of the liar's kind where it is one."""
        node = super().node(party)
        node.__class__ = self.liars.get(party, Node)
        return node
