"""Whole federations from seeds: what the network and the machines do leaves no trace in the result.

200 seeds, each with 20 % loss, copies, frames that overtake each other by several rounds, killed
processes (the broker among them) and kills inside a commit. Each ends with the calm run's weights,
bit by bit, and its ledgers, entry by entry.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from hdpvfl_mq.runtime.simulation import Faults
from schemas.methods import ActiveSide, PassiveSide
from tests.federation import Federation, manifest, tables
from tests.simulation.brittle import UNKIND, BrittleFederation, many_tables, sized_manifest

SEEDS, BLOCKS = 200, 50
SMALL = {"batch_rows": 17}  # nine rounds in three batches, cheap enough to run 200 times
ROWS = 50
PLAIN = {"guarantee": "none", "budget": None}
PAPER = {
    "guarantee": "paper",
    "active": ActiveSide(step_size=0.1, weight_norm=1.0),
    "passive": PassiveSide(step_size=0.1, weight_norm=1.0),
}


@cache
def calm(passives: int = 0, **changes):
    """Weights and ledgers of an undisturbed run; 0 passives takes the usual federation."""
    if passives:
        federation = Federation(sized_manifest(passives, **changes), many_tables(passives))
    else:
        federation = Federation(manifest(**changes), tables(ROWS))
    simulation = federation.simulate()
    assert set(federation.outcomes.values()) == {"completed"}
    return federation.weights(simulation), federation.spent()


def assert_same(federation: Federation, simulation, expected, seed: int) -> None:
    weights, spent = expected
    assert set(federation.outcomes.values()) == {"completed"}, f"seed {seed}"
    for party, w in federation.weights(simulation).items():
        np.testing.assert_array_equal(w, weights[party], err_msg=f"seed {seed}, {party}")
    assert federation.spent() == spent, f"seed {seed}"


REPEATED = pytest.mark.slow  # more of the same, for make soak
DRAWN = [0, *(pytest.param(n, marks=REPEATED) for n in (1, 2))]


@pytest.mark.parametrize("block", [0, *(pytest.param(n, marks=REPEATED) for n in range(1, BLOCKS))])
def test_200_disturbed_runs_end_like_the_calm_one(block):
    killed = 0
    for seed in range(block * SEEDS // BLOCKS, (block + 1) * SEEDS // BLOCKS):
        federation = BrittleFederation(manifest(**SMALL), tables(ROWS), seed=seed)
        try:
            simulation = federation.disturbed()
        except Exception as broken:
            raise AssertionError(f"seed {seed} does not end well") from broken
        assert_same(federation, simulation, calm(**SMALL), seed)
        killed += simulation.crashes
    assert killed > SEEDS // BLOCKS  # the faults are there, or the test shows nothing


@pytest.mark.parametrize("seed", DRAWN)
@pytest.mark.parametrize("passives", [1, 5])
def test_one_and_five_passive_parties(passives, seed):
    settings = {"epochs": 2, "batch_rows": 20}
    federation = BrittleFederation(
        sized_manifest(passives, **settings), many_tables(passives), seed=seed
    )
    assert_same(federation, federation.disturbed(), calm(passives, **settings), seed)


@pytest.mark.parametrize("seed", DRAWN)
@pytest.mark.parametrize("guarantee", [PLAIN, PAPER], ids=["none", "paper"])
def test_the_other_guarantees(guarantee, seed):
    federation = BrittleFederation(manifest(**SMALL, **guarantee), tables(ROWS), seed=seed)
    assert_same(federation, federation.disturbed(), calm(**SMALL, **guarantee), seed)


@pytest.mark.parametrize("seed", DRAWN)
@pytest.mark.parametrize("batch_rows", [10, 10**9])
def test_many_batches_and_one(batch_rows, seed):
    federation = BrittleFederation(manifest(batch_rows=batch_rows), tables(ROWS), seed=seed)
    assert_same(federation, federation.disturbed(), calm(batch_rows=batch_rows), seed)


@pytest.mark.parametrize("seed", DRAWN)
def test_kills_in_every_tenth_commit(seed):
    """Most steps are taken twice; none is booked twice."""
    federation = BrittleFederation(manifest(**SMALL), tables(ROWS), seed=seed, risk=0.05)
    simulation = federation.disturbed(Faults(delay_s=0.01))
    assert_same(federation, simulation, calm(**SMALL), seed)
    assert simulation.crashes >= 5


@pytest.mark.parametrize("victim", ["coordinator", "bank", "shop"])
@pytest.mark.parametrize(
    "moment", [0.0, 0.1, 0.6, 1.5, *(pytest.param(n, marks=REPEATED) for n in (0.02, 0.3, 1.0))]
)
def test_each_process_killed_at_each_stage(victim, moment):
    federation = Federation(manifest(**SMALL), tables(ROWS))
    faults = Faults(delay_s=0.05, absences=((victim, moment, 2.0),))
    simulation = federation.simulate(faults=faults)
    assert_same(federation, simulation, calm(**SMALL), 0)


def journals_of(federation: Federation) -> dict[str, list]:
    return {party: list(journal.records()) for party, journal in federation.journals.items()}


def test_a_seed_gives_one_sequence_of_events():
    small = manifest(**SMALL, epochs=2), tables(ROWS)
    runs = [BrittleFederation(*small, seed=11) for _ in range(2)]
    simulations = [run.disturbed(UNKIND) for run in runs]
    # Every input of every process in its order, with all that it sent, chained by hashes.
    assert journals_of(runs[0]) == journals_of(runs[1])
    assert simulations[0].now == simulations[1].now
    assert simulations[0].crashes == simulations[1].crashes
    other = BrittleFederation(*small, seed=12)
    other.disturbed(UNKIND)
    assert journals_of(other) != journals_of(runs[0])
