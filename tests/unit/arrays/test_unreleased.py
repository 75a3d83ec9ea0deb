"""An un-noised vector is opaque to everything but arithmetic that asks for it by name."""

from __future__ import annotations

import numpy as np
import pytest

from hdpvfl_mq.arrays.unreleased import Unreleased
from schemas.messages import MESSAGE
from schemas.tensor import Tensor
from tests.samples import sample


@pytest.fixture
def secret():
    return Unreleased(np.array([0.5, -1.25, 3.0]))


def test_expose_gives_the_numbers(secret):
    np.testing.assert_array_equal(secret.expose(), [0.5, -1.25, 3.0])
    assert len(secret) == 3


@pytest.mark.parametrize(
    "leak",
    [
        Tensor.of,
        lambda v: np.add(v, 1.0),
        lambda v: np.array(v, dtype=float),
        lambda v: np.concatenate([v]),
        sum,
        max,
        sorted,
        lambda v: v + 1,
        lambda v: [*v],
        lambda v: v.tolist(),
        lambda v: v._Unreleased__other,
        vars,
    ],
)
def test_nothing_takes_the_numbers_by_accident(secret, leak):
    with pytest.raises((TypeError, AttributeError, ValueError)):
        leak(secret)


def test_a_message_does_not_take_it(secret):
    plain = sample("score_share").model_dump()
    with pytest.raises(ValueError, match="validation error"):
        MESSAGE.validate_python({**plain, "release": secret})


def test_nothing_can_be_added_to_it(secret):
    with pytest.raises(AttributeError):
        secret.note = 1
