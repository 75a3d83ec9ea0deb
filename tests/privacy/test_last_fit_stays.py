"""The active party's last fit reaches nobody: not in a training, not in the session that follows.

The fit reads labels and columns without noise. Two federations with the same secrets differ only
in the result of that fit; every frame that any party sends must be the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from hdpvfl_mq.journal.chain import walk
from parties.rounds import shares_fit
from schemas.methods import PrivateModel
from schemas.records import EnvelopeSent
from tests.federation import Federation
from tests.simulation.scoring import session, trained

Patch = Callable[[pytest.MonkeyPatch], None]


def sent(federation: Federation) -> dict[str, list[Any]]:
    """Every frame of every party, the coordinator among them."""
    return {
        party: [
            effect.frames
            for record, _ in walk(journal.records())
            for effect in record.effects
            if isinstance(effect, EnvelopeSent)
        ]
        for party, journal in federation.journals.items()
    }


def forecast(kept: float) -> Patch:
    return lambda patch: patch.setattr(shares_fit, "signal_kept_of", lambda plan, y: kept)


def other_scale(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(shares_fit, "column_scale", lambda A: np.full(A.shape[1], 3.0))


def no_fit(patch: pytest.MonkeyPatch) -> None:
    def failing(*given: Any, **named: Any) -> None:
        raise FloatingPointError

    patch.setattr(shares_fit, "last_fit", failing)


FITS: dict[str, Patch] = {
    "nothing kept by the forecast": forecast(0.0),
    "all kept by the forecast": forecast(1.0),
    "columns in other units": other_scale,
    "no fit at all": no_fit,
}


@pytest.fixture(scope="module")
def plain():
    return trained(method=PrivateModel(held_out_rows=40))


@pytest.mark.parametrize("name", FITS)
def test_a_training_sends_the_same_whatever_the_fit_says(name, plain, monkeypatch):
    FITS[name](monkeypatch)
    federation, _ = trained(method=PrivateModel(held_out_rows=40))
    ours, theirs = sent(plain[0]), sent(federation)
    assert sum(map(len, ours.values())) > 10
    assert ours == theirs
    for party in federation.ledgers:
        assert plain[0].spent()[party] == federation.spent()[party]


def test_a_session_asks_every_partner_whatever_the_fit_says(monkeypatch):
    asked = []
    for kept in (0.0, 1.0):
        forecast(kept)(monkeypatch)
        _, models = trained(method=PrivateModel(held_out_rows=40))
        ran = session(models)
        ran.run()
        asked.append((sent(ran.federation), models["bank"].coefficients, ran.theta.tolist()))
    (first, without, _), (second, joint, _) = asked
    assert set(without.values()) == {0.0}
    assert all(joint.values())  # else the two fits are the same, and the comparison is empty
    assert asked[0][2] != asked[1][2]
    assert first == second
