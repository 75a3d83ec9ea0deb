"""A run whose people have several keys: trained on the right rows, whatever the network does."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from hdpvfl_mq.data.tables import Table
from hdpvfl_mq.runtime.simulation import Faults
from parties.common_rows import people_at, rows_of
from schemas.config import AlignmentSpec, IdRules
from schemas.data import DataSettings
from schemas.envelope import PROTOCOL_VERSION
from schemas.methods import PrivateModel
from tests.federation import Federation, manifest
from tests.simulation.brittle import BrittleFederation

RULES = IdRules(kind="email|text", columns=2, duplicates="ignore")
UNKIND = Faults(loss=0.2, copies=0.2, delay_s=0.3, crashes=6, crash_window_s=6.0)


def people(rows: int = 120) -> dict[str, Table]:
    """Nobody's e-mail is known to everybody; a third can be matched by their number alone."""
    dice = np.random.default_rng(5)
    numbers = dice.permutation(10**6)[:rows]
    tables = {}
    for place, party in enumerate(("bank", "shop", "telco")):
        known = dice.permutation(rows)[: rows - 7]
        mails = [f"p{n}@example.org" if n % 3 != place else "" for n in known.tolist()]
        phones = [str(numbers[n]) if n % 2 or n % 3 == place else "" for n in known.tolist()]
        label = {"y": (known % 2).astype(float)} if party == "bank" else {}
        tables[party] = Table.of(
            {
                "mail": np.array(mails, dtype=object),
                "phone": np.array(phones, dtype=object),
                **label,
                f"{party}_person": known.astype(float),
            }
        )
    return tables


@dataclass
class KeyedFederation(BrittleFederation):
    def settings(self, party: str) -> DataSettings:
        ids = {"id_columns": ("mail", "phone"), "empty_ids": "keep"}
        label = {"label_column": "y", "label_kind": "binary"} if party == "bank" else {}
        return DataSettings(**ids, **label)


def federation_of(**options) -> KeyedFederation:
    alignment = AlignmentSpec(ids=RULES, rows_min=10)
    return KeyedFederation(
        manifest(method=PrivateModel(), alignment=alignment, wire=PROTOCOL_VERSION),
        people(),
        **options,
    )


def matched(federation: Federation, simulation) -> dict[str, list[float]]:
    """The people behind the common rows, in the common order, by every party's own table."""
    found = {}
    for party in federation.parties:
        node = simulation.nodes[party]
        order = rows_of(node.role.own, node.state.trained.setup).order
        found[party] = federation.tables[party][f"{party}_person"][order].tolist()
    return found


@cache
def calm():
    federation = federation_of(risk=0.0)
    simulation = federation.simulate()
    assert set(federation.outcomes.values()) == {"completed"}
    return federation, simulation


def test_all_parties_train_on_the_same_people_in_the_same_order():
    federation, simulation = calm()
    found = matched(federation, simulation)
    assert found["bank"] == found["shop"] == found["telco"]
    numbers = set(map(int, found["bank"]))
    common = set.intersection(
        *(set(t[f"{p}_person"].astype(int).tolist()) for p, t in federation.tables.items())
    )
    assert numbers == {n for n in common if n % 2}  # e-mails are never known to all three
    assert len(numbers) == len(found["bank"]) > 40


def test_faults_and_restarts_change_nothing():
    before, calm_simulation = calm()
    federation = federation_of(risk=0.05)
    federation.dice.seed("several keys")
    simulation = federation.simulate(seed=3, faults=UNKIND)
    assert set(federation.outcomes.values()) == {"completed"}
    assert simulation.crashes >= 3
    assert matched(federation, simulation) == matched(before, calm_simulation)
    for party, w in federation.weights(simulation).items():
        np.testing.assert_array_equal(w, before.weights(calm_simulation)[party])
    assert federation.spent() == before.spent()


def test_limits_for_a_person_count_by_one_name():
    _, simulation = calm()
    node = simulation.nodes["shop"]
    setup = node.state.trained.setup
    names = people_at(node.role.own, setup, np.arange(setup.plan.rows))
    assert len(set(names)) == setup.plan.rows
    assert any(name[0] == 0 for name in names)  # matched by number, known by e-mail
