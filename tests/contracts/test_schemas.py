"""Every schema x every property: closed, frozen, strict, finite, and bounded in every field."""

from __future__ import annotations

import types
import typing
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import annotated_types
import pytest
from pydantic import BaseModel

from schemas import config, data, policy, privacy, records
from schemas.base import Closed
from schemas.envelope import Header
from tests.samples import KINDS


def models_in(root: type[BaseModel]) -> set[type[BaseModel]]:
    """Every schema a message can hold, however deep."""
    found: set[type[BaseModel]] = set()

    def visit(kind: Any) -> None:
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            if kind in found:
                return
            found.add(kind)
            for hint in typing.get_type_hints(kind, include_extras=True).values():
                visit(hint)
        for argument in get_args(kind):
            visit(argument)

    visit(root)
    return found


SCHEMAS = sorted(
    set().union(
        *(models_in(kind) for kind in KINDS.values()),
        *(
            models_in(root)
            for root in (
                Header,
                records.StepRecord,
                config.RunManifest,
                policy.PartyPolicy,
                config.PartySettings,
                config.BrokerSettings,
                data.DataSettings,
                privacy.Cosignature,
                privacy.SecretFixed,
                privacy.CapFixed,
                privacy.RunReserved,
                privacy.ReleaseBooked,
            )
        ),
    ),
    key=lambda kind: kind.__name__,
)


def leaves(hint: Any, constraints: tuple[Any, ...] = ()) -> list[tuple[Any, tuple[Any, ...]]]:
    """The plain types of a field, each with the constraints that hold for it."""
    if get_origin(hint) is Annotated:
        inner, *extra = get_args(hint)
        return leaves(inner, (*constraints, *extra))
    if get_origin(hint) in (Union, types.UnionType):
        return [leaf for option in get_args(hint) for leaf in leaves(option, constraints)]
    if get_origin(hint) is tuple:
        items = [a for a in get_args(hint) if a is not Ellipsis]
        return [(tuple, constraints), *(leaf for item in items for leaf in leaves(item))]
    return [(hint, constraints)]


def limits(constraints: tuple[Any, ...]) -> set[str]:
    names = set()
    for constraint in constraints:
        for single in getattr(constraint, "metadata", (constraint,)):
            for name in ("ge", "gt", "le", "lt", "min_length", "max_length", "pattern"):
                if getattr(single, name, None) is not None:
                    names.add(name)
            if isinstance(single, annotated_types.Len) and single.max_length is not None:
                names.add("max_length")
    return names


@pytest.mark.parametrize("schema", SCHEMAS, ids=lambda schema: schema.__name__)
def test_schemas_are_closed_frozen_strict_and_finite(schema):
    assert issubclass(schema, Closed)
    settings = schema.model_config
    assert settings["frozen"]
    assert settings["strict"]
    assert settings["extra"] == "forbid"
    assert settings["allow_inf_nan"] is False
    assert settings["hide_input_in_errors"]


@pytest.mark.parametrize("schema", SCHEMAS, ids=lambda schema: schema.__name__)
def test_every_number_text_and_sequence_has_bounds(schema):
    for name, hint in typing.get_type_hints(schema, include_extras=True).items():
        if name not in schema.model_fields:
            continue
        for kind, constraints in leaves(hint):
            where = f"{schema.__name__}.{name}"
            found = limits(constraints)
            if kind in (int, float):
                assert found & {"ge", "gt"}, f"{where} has no lower bound"
                assert found & {"le", "lt"}, f"{where} has no upper bound"
            elif kind in (str, bytes):
                assert found & {"max_length", "pattern"}, f"{where} has no limit"
            elif kind is tuple:
                assert "max_length" in found, f"{where} has no limit"
            else:
                allowed = (
                    kind in (bool, type(None), memoryview)  # read-only and bounded, checked below
                    or get_origin(kind) is Literal
                    or (isinstance(kind, type) and issubclass(kind, Closed))
                )
                assert allowed, f"{where} holds {kind}: only immutable values cross a boundary"
