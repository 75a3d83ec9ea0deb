"""Climbing neighbours through the real roles against every bound of the private model.

No pair exceeds a bound, climbed pairs come close to each, and a planted fault exceeds it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any
from unittest import mock

import numpy as np
import pytest
from private_model_roles import COLUMNS, DISTANCE, ROWS, Array, Passive

from hdpvfl_mq.arrays.unreleased import Unreleased
from hdpvfl_mq.glm.families import FAMILIES, family
from hdpvfl_mq.glm.response import Response
from hdpvfl_mq.methods.private_model import plan as plan_module
from hdpvfl_mq.methods.private_model.plan import score_bound
from hdpvfl_mq.methods.private_model.statistics import clipped
from hdpvfl_mq.privacy import mechanism as mechanism_module
from hdpvfl_mq.privacy.mechanism import Mechanism
from hdpvfl_mq.privacy.noise import stream_key
from parties.rounds import private_model
from schemas.methods import PrivateModel
from schemas.model import LossSpec

ROUNDING = 1.0 + 1e-9
CLOSE = 0.95


def attacked() -> Passive:
    """With so few rows scores are small in units of their deviation, so their bound is too."""
    return Passive(PrivateModel(columns_max=COLUMNS, score_bound=0.5))


def unit(X: Array) -> Array:
    return X / np.maximum(1.0, np.linalg.norm(X, axis=-1, keepdims=True))


def shares(party: Passive, pair: dict[str, Array], kind: str) -> float:
    """How much of its bound a release moves between two neighbours."""
    other = pair["X"].copy()
    other[0] = pair["row"]
    given = {"moments": pair["u"], "gram": pair["G"]} if kind == "share" else None
    before, after = (
        party.releases(X, pair["received"], given=given)[kind] for X in (pair["X"], other)
    )
    plans = party.plan.releases_of("passive")
    return DISTANCE[kind](before, after) / plans[kind].sensitivity


def born(dice: np.random.Generator) -> dict[str, Array]:
    diagonal = np.full(COLUMNS, 0.4)
    return {
        "X": unit(dice.normal(size=(ROWS, COLUMNS))),
        "row": unit(dice.normal(size=COLUMNS) * 3.0),
        "received": dice.normal(size=ROWS) * 20.0,
        "u": dice.normal(size=COLUMNS),
        "G": np.concatenate([diagonal, dice.normal(size=COLUMNS * (COLUMNS - 1) // 2) * 0.1]),
    }


def climbed(party: Passive, kind: str, *, steps: int = 90, seed: int = 0) -> float:
    """The largest share of the bound that hill climbing reaches."""
    dice = np.random.default_rng(seed)
    starts = [born(dice) for _ in range(12)]
    reached, best = max(
        ((shares(party, each, kind), each) for each in starts), key=lambda found: found[0]
    )
    for _ in range(steps):
        size = dice.choice([0.05, 0.3, 1.0])
        child = {name: v + dice.normal(size=v.shape) * size for name, v in best.items()}
        child["received"] = best["received"] + dice.normal(size=ROWS) * 30.0 * size
        child = {**child, "X": unit(child["X"]), "row": unit(child["row"])}
        found = shares(party, child, kind)
        if found > reached:
            reached, best = found, child
    return reached


@pytest.mark.parametrize("kind", ["moments", "gram", "share"])
def test_no_neighbour_exceeds_a_bound_and_some_come_close(kind: str) -> None:
    assert CLOSE < climbed(attacked(), kind) <= ROUNDING


def unclipped(received: Array, clip: float, allocate: Any) -> Array:
    return clipped(received, 1e6)


def centred_last(received: Array, clip: float, allocate: Any) -> Array:
    z = np.clip(received, -clip, clip)
    return z - z.mean()


@contextmanager
def smaller(name: str, factor: float) -> Iterator[None]:
    """A bound that lacks a factor."""
    right = getattr(plan_module, name)
    with mock.patch.object(plan_module, name, lambda *a: right(*a) * factor):
        yield


FAULTS: dict[str, tuple[str, Any]] = {
    "z is not clipped": ("moments", lambda: mock.patch.object(private_model, "clipped", unclipped)),
    "centred after the clip": (
        "moments",
        lambda: mock.patch.object(private_model, "clipped", centred_last),
    ),
    "sqrt(2) is taken for 1": ("gram", lambda: smaller("gram_move", 0.5**0.5)),
    "2 C is taken for C": ("moments", lambda: smaller("moments_move", 0.5)),
    "scores are not clipped": (
        "share",
        lambda: mock.patch.object(
            plan_module.PrivateModelPlan, "score_bound", property(lambda plan: 1e6)
        ),
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_exceeds_the_bound(fault: str) -> None:
    kind, plant = FAULTS[fault]
    with plant():
        party = attacked()
        # The mechanism clips too: that second fence is taken down to see the first.
        loose = mock.patch.object(mechanism_module, "_on_lattice", _unfenced)
        with loose if kind != "gram" else nullcontext():
            assert climbed(party, kind) > ROUNDING


def _unfenced(values: Array, plan: Any, allocate: Any) -> Array:
    return np.rint(values / 2.0**plan.exponent).astype(np.int64)


def test_a_share_moves_in_the_replaced_row_alone() -> None:
    party, pair = Passive(), born(np.random.default_rng(3))
    other = pair["X"].copy()
    other[5] = pair["row"]
    given = {"moments": pair["u"], "gram": pair["G"]}
    before, after = (
        party.releases(X, pair["received"], given=given)["share"] for X in (pair["X"], other)
    )
    assert np.flatnonzero(before != after).tolist() == [5]


@pytest.mark.parametrize("name", FAMILIES)
def test_labels_of_every_loss_move_by_at_most_2(name: str) -> None:
    loss = family(LossSpec(name=name, weight_max=3.0))
    wild = np.array([-1e30, -3.0, 0.0, 1e-9, 0.5, 1.0, 2.0, 1e30, np.nan])
    y, v = (part.ravel() for part in np.meshgrid(wild, np.array([-5.0, 0.0, 1.0, 3.0, 99.0])))
    values = Response(loss, y, weights=v).centred_labels(slice(0, len(y))).expose()
    assert np.abs(values).max() <= 1.0
    assert values.max() - values.min() > 1.9
    assert Passive().plan.active_noise.sensitivity >= 2.0


def test_noise_of_the_gram_is_wider_on_the_diagonal() -> None:
    columns = 60
    plan = Passive(PrivateModel(columns_max=columns)).plan.inner_noise["gram"]
    zero = Unreleased(np.zeros(columns * (columns + 1) // 2))
    maker = Mechanism("shop", "run", b"s" * 32, {"gram": plan})
    drawn = maker.release(zero, "gram", 0, b"").tensor.array() * 2.0**plan.exponent
    on, off = drawn[:columns].std(), drawn[columns:].std()
    assert on == pytest.approx(plan.noise_std, rel=0.25)
    assert off == pytest.approx(plan.noise_std / 2**0.5, rel=0.07)


@pytest.mark.parametrize("is_shared", [False, True])
def test_moments_and_gram_have_noise_of_their_own(is_shared: bool) -> None:
    """The same numbers under two release ids: noise keyed without the id would be the same."""
    plan = Passive().plan.inner_noise["moments"]
    maker = Mechanism("shop", "run", b"s" * 32, {"moments": plan, "other": plan})

    def forgetful(seed: bytes, *address: bytes) -> bytes:
        return stream_key(seed, *(part for part in address if b"/" not in part))

    with mock.patch.object(mechanism_module, "stream_key", forgetful if is_shared else stream_key):
        first, second = (
            maker.release(Unreleased(np.zeros(8)), kind, 0, b"").tensor.array()
            for kind in ("moments", "other")
        )
    assert np.array_equal(first, second) == is_shared


def test_the_bound_of_scores_lies_on_their_grid() -> None:
    for bound in (0.25, 0.3, 2.0, 2.5, 3.1):
        plan = Passive(PrivateModel(columns_max=COLUMNS, score_bound=bound)).plan
        on_grid = plan.score_bound / 2.0**plan.passive_noise.exponent
        assert on_grid == int(on_grid)
        assert plan.passive_noise.sensitivity >= 2.0 * score_bound(plan.method)
