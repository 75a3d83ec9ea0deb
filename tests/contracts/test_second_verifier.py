"""The second verifier shares no code with the product; it knows the same losses and methods."""

from __future__ import annotations

from typing import get_args

import pytest

from hdpvfl_mq.glm.families import FAMILIES, family
from hdpvfl_mq.glm.penalties import PENALTIES, penalty
from schemas.methods import Method
from schemas.model import LossSpec, PenaltySpec
from scripts.verify_journal import formats, prices
from scripts.verify_journal.losses import Loss, contraction


@pytest.mark.parametrize("name", FAMILIES)
def test_it_has_the_constants_of_every_loss(name):
    spec = LossSpec(name=name, weight_max=2.0)
    product, second = family(spec), Loss(spec.model_dump())
    assert second.bound == pytest.approx(product.residual_bound)
    assert second.smoothness == pytest.approx(product.smoothness)
    assert second.rounding(1.0) == pytest.approx(product.rounding(1.0))


@pytest.mark.parametrize("name", PENALTIES)
@pytest.mark.parametrize("beta", [None, 0.5])
def test_it_has_the_contraction_of_every_penalty(name, beta):
    spec, etas = PenaltySpec(name=name, strength=0.3, mixing=0.5), [0.7, 0.2]
    product = penalty(spec).contraction(etas, beta=beta)
    assert contraction(spec.model_dump(), etas, beta, free=False) == pytest.approx(product)


def test_it_has_the_prices_of_every_method():
    kinds = {kind.model_fields["kind"].default for kind in get_args(get_args(Method)[0])}
    assert set(prices.PLANS) == set(formats.METHODS["2"].split()) == kinds
