"""Every message kind x every property: a new message gets its tests by being in the union."""

from __future__ import annotations

import hashlib
import math
import types
import typing
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import annotated_types
import numpy as np
import pytest
from pydantic import BaseModel, ValidationError

from hdpvfl_mq.errors import PeerError
from hdpvfl_mq.wire.codec import decode_body, decode_header, encode_body, encode_header
from schemas import config, data, envelope, policy, privacy, records
from schemas import messages as m
from schemas.base import Closed
from schemas.envelope import Header
from schemas.tensor import Tensor
from tests.samples import KINDS, example, sample

ALL = sorted(KINDS)


def header(kind: str) -> Header:
    return Header(**{**dict(example(Header)), "kind": kind})


def wire(message: m.Message) -> tuple[Header, tuple[bytes, ...]]:
    body, arrays = encode_body(message)
    head = header(message.kind)
    return head, (encode_header(head), bytes(64), body, *arrays)


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


def test_the_union_and_the_table_of_routes_name_the_same_kinds():
    assert set(KINDS) == set(m.ROUTES)
    assert len(get_args(m.Message)) == len(KINDS)
    for may_send, may_receive in m.ROUTES.values():
        assert may_send
        assert may_receive


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


@pytest.mark.parametrize("kind", ALL)
def test_a_message_survives_the_wire(kind):
    message = sample(kind)
    head, frames = wire(message)
    assert decode_header(frames) == head
    assert decode_body(head, frames) == message


@pytest.mark.parametrize("kind", ALL)
def test_the_same_message_is_the_same_bytes(kind):
    assert encode_body(sample(kind)) == encode_body(sample(kind))


@pytest.mark.parametrize("kind", ALL)
def test_a_message_cannot_be_changed(kind):
    message = sample(kind)
    for name, value in message:
        with pytest.raises(ValidationError):
            setattr(message, name, value)
    with pytest.raises(ValidationError):
        message.another = 1


@pytest.mark.parametrize("kind", ALL)
def test_a_message_has_no_unknown_and_no_missing_field(kind):
    plain = sample(kind).model_dump()
    with pytest.raises(ValidationError):
        m.MESSAGE.validate_python({**plain, "another": 1})
    for name, info in KINDS[kind].model_fields.items():
        if info.is_required():
            with pytest.raises(ValidationError):
                m.MESSAGE.validate_python({k: v for k, v in plain.items() if k != name})


def paths(value: Any, at: tuple[Any, ...] = ()):
    """Every place in a plain message."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from paths(item, (*at, key))
    elif isinstance(value, tuple):
        for number, item in enumerate(value):
            yield from paths(item, (*at, number))
    yield at, value


def changed(value: Any, at: tuple[Any, ...], new: Any) -> Any:
    if not at:
        return new
    first, *rest = at
    if isinstance(value, dict):
        return {**value, first: changed(value[first], tuple(rest), new)}
    items = list(value)
    items[first] = changed(items[first], tuple(rest), new)
    return tuple(items)


NONSENSE = {
    "nan": math.nan,
    "infinity": math.inf,
    "minus infinity": -math.inf,
    "huge": 10**4000,
    "beyond int64": 2**64,
    "far below": -(2**70),
    "long text": "a" * 100_000,
    "list": [1, 2],
    "function": len,
}


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize("nonsense", NONSENSE)
def test_nonsense_in_any_field_is_refused(kind, nonsense):
    """Strict pydantic lets NaN, 10**4000 and lists pass where a schema does not forbid them."""
    plain = sample(kind).model_dump()
    for at, value in paths(plain):
        if at == () or isinstance(value, dict):
            continue
        with pytest.raises(ValidationError):
            m.MESSAGE.validate_python(changed(plain, at, NONSENSE[nonsense]))


@pytest.mark.parametrize("kind", ALL)
def test_values_of_a_neighbouring_type_are_refused(kind):
    """True is not 1, 1 is not 1.0 where a count is meant, text is not bytes."""
    plain = sample(kind).model_dump()
    for at, value in paths(plain):
        others = {
            bool: (1, "true"),
            int: (True, float(value) if type(value) is int else 0, str(value)),
            str: (value.encode() if isinstance(value, str) else b"", 1),
            bytes: ("text", 1),
            tuple: (list(value) if isinstance(value, tuple) else [],),
        }.get(type(value), ())
        for other in others:
            with pytest.raises(ValidationError):
                m.MESSAGE.validate_python(changed(plain, at, other))


@pytest.mark.parametrize("kind", ALL)
def test_header_and_body_must_name_the_same_kind(kind):
    other = "ack" if kind != "ack" else "pause"
    _, frames = wire(sample(kind))
    with pytest.raises(PeerError):
        decode_body(header(other), frames)


@pytest.mark.parametrize(
    ("dtype", "shape", "data"),
    [
        ("<f8", (1,), np.array([np.nan]).tobytes()),
        ("<f8", (2,), np.array([0.0, np.inf]).tobytes()),
        ("<f8", (1,), b"1234567"),
        ("<i4", (3,), bytes(8)),
        ("<i8", (2**32, 2**32), b""),  # np.prod says 0
        ("<i8", (2**40, 2**24), b""),
        ("<i8", (), bytes(8)),
        ("<i8", (1, 1, 1), bytes(8)),
        ("<i8", (-1,), b""),
        (">i8", (1,), bytes(8)),
        ("<f4", (1,), bytes(4)),
        ("<c16", (1,), bytes(16)),
        ("|O", (1,), bytes(8)),
        ("|b1", (1,), bytes(1)),
        ("<U1", (1,), bytes(4)),
        ("<M8[s]", (1,), bytes(8)),
    ],
)
def test_a_tensor_that_is_not_what_it_says_is_refused(dtype, shape, data):
    with pytest.raises(ValidationError):
        Tensor(dtype=dtype, shape=shape, data=data)


def test_only_the_whitelisted_types_travel():
    for dtype in ("i1", "i2", "i4", "i8", "u1", "f8"):
        values = np.arange(3).astype(dtype)
        np.testing.assert_array_equal(Tensor.of(values).array(), values)
        np.testing.assert_array_equal(Tensor.of(values.astype(f">{dtype}")).array(), values)
    for dtype in ("f4", "u2", "u8", "c16", "b1", "O"):
        with pytest.raises((ValidationError, TypeError)):
            Tensor.of(np.zeros(2).astype(dtype))


def test_a_received_array_cannot_be_written_to():
    array = Tensor.of(np.arange(3)).array()
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 1


@pytest.mark.parametrize(
    "data",
    [memoryview(bytearray(24)), memoryview(np.arange(3)).toreadonly(), memoryview(bytes(16))],
    ids=["writable", "not of bytes", "too short"],
)
def test_a_buffer_of_a_tensor_is_read_only_and_exact(data):
    assert Tensor(dtype="<i8", shape=(3,), data=memoryview(bytes(24))).array().tolist() == [0] * 3
    with pytest.raises(ValidationError):
        Tensor(dtype="<i8", shape=(3,), data=data)


def test_the_limits_of_an_envelope_fit_each_other():
    assert envelope.MIN_FRAMES == 3
    # header, signature, body and at most one array: no message has two tensors.
    tensors = [sum(t is Tensor for t, _ in _tensor_leaves(kind)) for kind in KINDS.values()]
    assert max(tensors) == 1
    # A large array is two frames: the digests of its parts, and their sizes.
    assert 3 + 2 == envelope.IN_PARTS_FRAMES == envelope.MAX_FRAMES


def _tensor_leaves(kind: type[BaseModel]) -> list[tuple[Any, Any]]:
    found = []
    for hint in typing.get_type_hints(kind, include_extras=True).values():
        for leaf, constraints in leaves(hint):
            if isinstance(leaf, type) and issubclass(leaf, BaseModel) and leaf is not Tensor:
                found += _tensor_leaves(leaf)
            else:
                found.append((leaf, constraints))
    return found


def test_the_digest_of_a_tensor_is_no_field_of_it():
    one, other = (Tensor(dtype="<i2", shape=(2,), data=b"\x01\x00\x02\x00") for _ in range(2))
    assert one.digest == hashlib.sha256(one.data).digest()
    assert one == other
    assert one.model_dump() == other.model_dump()
    assert set(one.model_dump()) == set(dict(one)) == {"dtype", "shape", "data"}
