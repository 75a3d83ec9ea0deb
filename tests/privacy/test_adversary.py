"""Neighbouring parties under an adversary who sends whatever the table of moves allows.

The quick form of the search in `make audit-privacy`: the production roles take every step, the
mechanism is observed while it works, and the ledger is the one that books.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import islice

import numpy as np
import pytest

from parties.party import Party
from parties.phases import Closed, Training
from schemas.config import AlignmentSpec, IdRules, RunManifest
from schemas.envelope import PROTOCOL_VERSION
from schemas.methods import Descent, PassiveSide
from schemas.policy import PartyPolicy
from schemas.privacy import Budget
from tests.adversary.forged import Act
from tests.adversary.moves import given
from tests.adversary.neighbours import Rows
from tests.adversary.pair import Pair
from tests.adversary.scenarios import POLICY, Scenario
from tests.adversary.search import episodes
from tests.adversary.tap import Leak

SEEDS, MOVES = range(6), 600


@pytest.mark.parametrize("seed", SEEDS)
def test_no_move_tells_neighbours_apart_by_more_than_was_booked(seed):
    """Leak is raised where it does; the search must have seen releases that differ."""
    moves, top = 0, 0.0
    for more, peak, _ in episodes(seed, climbs=5):
        moves, top = moves + more, max(top, peak)
        if moves >= MOVES:
            break
    assert 0.0 < top <= 1.0


def test_the_same_seed_plays_the_same_episodes():
    first, again = ([(moves, peak) for moves, peak, _ in islice(episodes(3), 5)] for _ in range(2))
    assert first == again


def test_noise_is_as_wide_as_every_release_says():
    """Each release by itself, of ten secrets: one without noise among many would be noticed."""
    for number in range(10):
        pair, chosen = passive_pair(bytes([number]) * 32, rows=500)
        drive(pair, chosen, *TO_TRAINING, *["values"] * 6)
        assert pair.tap.values >= 1000
        pair.tap.check_noise()


# -- the search notices ---------------------------------------------------------------------------


def passive_pair(secret: bytes = bytes(32), rows: int = 6) -> tuple[Pair, Scenario]:
    """A passive party in a sound run of descent, its first row turned around."""
    run = RunManifest(
        run="known",
        active_party="bank",
        passive_parties=("shop",),
        budget=Budget(epsilon=1.0, delta=0.01),
        method=Descent(batch_rows=rows // 2, passive=PassiveSide(received_clip=1.0)),
        alignment=AlignmentSpec(ids=IdRules(kind="integer"), rows_min=2),
        wire=PROTOCOL_VERSION,
    )
    mine = Rows(np.ones((rows, 1)), np.zeros(rows))
    pair = Pair("shop", POLICY, (mine, mine.replaced(0, -np.ones(1), 0.0)), secret=secret)
    pair.enter(run)
    return pair, Scenario(victim="shop", manifest=run, rows=rows, columns=1)


def drive(pair: Pair, chosen: Scenario, *names: str) -> None:
    for name in names:
        act = Act(name, sender="bank" if name == "values" else "coordinator", values=np.ones(1))
        given(pair, act, chosen.offers)


TO_TRAINING = ("start", "offer", "begin", "agree", "plan")


def test_a_release_of_one_neighbour_alone_is_noticed():
    pair, chosen = passive_pair()
    drive(pair, chosen, *TO_TRAINING[:-1])
    one, two = pair.sides
    two.role.moves = {k: v for k, v in two.role.moves.items() if k[1] != "round_plan"}
    with pytest.raises(Leak, match="only one"):
        drive(pair, chosen, "plan")
    assert isinstance(one.state, Training)


def test_another_word_of_one_neighbour_is_noticed():
    pair, chosen = passive_pair()
    drive(pair, chosen, "start")
    two = pair.sides[1]
    strict = PartyPolicy(**{**dict(POLICY), "rows_min": 10**6})
    two.role = Party(replace(two.own, policy=strict))
    with pytest.raises(Leak, match="neighbours say"):
        drive(pair, chosen, "offer")


def test_more_than_was_booked_is_noticed():
    pair, chosen = passive_pair()
    drive(pair, chosen, *TO_TRAINING, *["values"] * 3)
    assert 0.0 < pair.peak <= 1.0
    pair.tap.spent = 2.0 * pair.booked
    with pytest.raises(Leak, match="booked are"):
        drive(pair, chosen, "pause")


def test_after_the_end_a_party_says_nothing_about_its_rows():
    pair, chosen = passive_pair()
    drive(pair, chosen, *TO_TRAINING, "values", "closed")
    spent = pair.tap.spent
    drive(pair, chosen, "values", "plan", "pause", "resume", "offer", "start", "values", "plan")
    assert isinstance(pair.view, Closed)
    assert pair.tap.spent == spent


# -- noise has an address --------------------------------------------------------------------------


def releases(secret: bytes) -> dict[str, bytes]:
    pair, chosen = passive_pair(secret)
    drive(pair, chosen, *TO_TRAINING, "values", "values")
    return pair.tap.told


def test_who_has_another_secret_has_other_noise_in_the_same_run():
    """Bug: noise of a key that everybody can compute is no noise."""
    one, again, other = (releases(secret) for secret in (b"a" * 32, b"a" * 32, b"b" * 32))
    assert one == again
    assert one.keys() == other.keys()
    assert all(one[name] != other[name] for name in one)
