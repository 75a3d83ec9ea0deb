"""parties/phases: a changed state is the one that `dataclasses.replace` makes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pytest

from parties.phases import ActiveRounds, PassiveRounds, RoundState, Terms, changed, checked


@dataclass(frozen=True)
class Doubled:
    number: int
    name: str = "one"

    @cached_property
    def twice(self) -> int:
        return 2 * self.number


def test_a_changed_state_is_the_replaced_one():
    before = Terms(manifest=b"m", members=b"p", toss=b"t", order=b"o", plan=b"n")
    after = changed(before, toss=b"other", plan=b"")
    assert after == replace(before, toss=b"other", plan=b"")
    assert before.toss == b"t"
    rounds = changed(PassiveRounds(w=np.ones(2)), shared=3)
    assert (rounds.shared, list(rounds.w)) == (3, [1.0, 1.0])


def test_a_cached_property_is_not_carried_over():
    before = Doubled(2)
    assert before.twice == 4
    assert changed(before, number=5).twice == 10


def test_a_field_that_is_not_there_is_refused():
    with pytest.raises(TypeError, match="has no numbr"):
        changed(Doubled(2), numbr=3)


def test_a_round_state_of_another_method_fails_where_it_is_used():
    rounds = PassiveRounds(w=np.zeros(2))
    assert checked(PassiveRounds, rounds) is rounds
    assert checked(RoundState, rounds) is rounds
    with pytest.raises(AssertionError, match="PassiveRounds instead of ActiveRounds"):
        checked(ActiveRounds, rounds)
