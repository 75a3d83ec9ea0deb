"""What a manifest may say about loss and penalty."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from schemas.model import LossSpec, PenaltySpec


@pytest.mark.parametrize(
    "fields",
    [
        {"name": "probit"},
        {"residual_clip": 0.0},
        {"residual_clip": float("inf")},
        {"label_low": 2.0, "label_high": 1.0},
        {"label_high": float("nan")},
        {"label_high": 1e17},
        {"label_low": -1.1e9},
        {"name": "gamma_canonical", "theta_min": 2.0, "theta_max": 1.0},
        {"name": "gamma", "dispersion": 0.0},
        {"weight_max": 0.0},
        {"offset_max": -1.0},
        {"huber_c": -1.0},
        {"clip": 1.0},
    ],
)
def test_impossible_losses_are_refused(fields: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        LossSpec(**fields)


@pytest.mark.parametrize(
    "fields",
    [
        {"name": "l3"},
        {"strength": -1.0},
        {"mixing": float("nan")},
    ],
)
def test_impossible_penalties_are_refused(fields: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        PenaltySpec(**fields)


def test_specs_survive_json() -> None:
    for spec in (
        LossSpec(name="gamma", dispersion=0.3, residual_clip=2.0),
        PenaltySpec(name="none"),
        PenaltySpec(name="elastic_net", strength=0.1, mixing=0.5),
    ):
        assert type(spec).model_validate_json(spec.model_dump_json()) == spec
