"""Every schema x every property: closed, frozen, strict, finite, and bounded in every field."""

from __future__ import annotations

import re
import types
import typing
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import annotated_types
import pytest
from pydantic import BaseModel, TypeAdapter, ValidationError

from schemas import config, data, policy, privacy, records
from schemas.base import Strict
from schemas.config import Endpoint
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


ROOTS = (
    *KINDS.values(),
    Header,
    records.StepRecord,
    config.RunManifest,
    policy.PartyPolicy,
    config.PartySettings,
    config.PartyServiceSettings,
    config.BrokerSettings,
    data.DataSettings,
    privacy.Cosignature,
    privacy.SecretFixed,
    privacy.CapFixed,
    privacy.RunReserved,
    privacy.ReleaseBooked,
)


@pytest.fixture(scope="module")
def schemas() -> set[type[BaseModel]]:
    return set().union(*map(models_in, ROOTS))


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


def patterns(constraints: tuple[Any, ...]) -> set[str]:
    """The patterns that pydantic compiles itself."""
    singles = [s for each in constraints for s in getattr(each, "metadata", (each,))]
    found = (getattr(single, "pattern", None) for single in singles)
    return {pattern for pattern in found if isinstance(pattern, str)}


SETTINGS = {
    "frozen": True,
    "strict": True,
    "extra": "forbid",
    "allow_inf_nan": False,
    "hide_input_in_errors": True,
}


def test_schemas_are_closed_frozen_strict_and_finite(schemas):
    for schema in schemas:
        assert issubclass(schema, Strict), schema
        found = {name: schema.model_config.get(name) for name in SETTINGS}
        assert found == SETTINGS, schema


def test_no_pattern_repeats_a_class_of_unicode(schemas):
    """Pydantic's engine makes a copy of a class for every repetition: 1 MiB for 253 of `[^/]`."""
    for schema in schemas:
        for name, hint in typing.get_type_hints(schema, include_extras=True).items():
            for _, constraints in leaves(hint):
                for pattern in patterns(constraints):
                    where = f"{schema.__name__}.{name}"
                    assert not re.search(r"(\[\^[^]]*\]|\\[wWsSdD]|\.)\{", pattern), where


def test_an_endpoint_ends_where_its_port_ends():
    parsed = TypeAdapter(Endpoint).validate_python
    assert parsed("tcp://" + "h" * 253 + ":12345")
    for wrong in ("tcp://h:1\n", "tcp://h:1 ", "tcp://" + "h" * 254 + ":1", "tcp://h:123456"):
        with pytest.raises(ValidationError):
            parsed(wrong)


def test_every_number_text_and_sequence_has_bounds(schemas):
    fields = [
        (schema, name, hint)
        for schema in schemas
        for name, hint in typing.get_type_hints(schema, include_extras=True).items()
        if name in schema.model_fields
    ]
    for schema, name, hint in fields:
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
                    or (isinstance(kind, type) and issubclass(kind, Strict))
                )
                assert allowed, f"{where} holds {kind}: only immutable values cross a boundary"
