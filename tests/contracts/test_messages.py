"""Every message kind x every property: a new message gets its tests by being in the union."""

from __future__ import annotations

import itertools
import math
from typing import Any, get_args

import pytest
from pydantic import ValidationError

from hdpvfl_mq.errors import PeerError
from hdpvfl_mq.wire.codec import decode_body, decode_header, encode_body, encode_header
from schemas import messages as m
from schemas.envelope import Header
from tests.samples import KINDS, example, sample

ALL = sorted(KINDS)


def header(kind: str) -> Header:
    return Header(**{**dict(example(Header)), "kind": kind})


def wire(message: m.Message) -> tuple[Header, tuple[bytes, ...]]:
    body, arrays = encode_body(message)
    head = header(message.kind)
    return head, (encode_header(head), bytes(64), body, *arrays)


def test_the_union_and_the_table_of_routes_name_the_same_kinds():
    assert set(KINDS) == set(m.ROUTES)
    assert len(get_args(m.Message)) == len(KINDS)
    for may_send, may_receive in m.ROUTES.values():
        assert may_send
        assert may_receive


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


def is_taken(plain: Any) -> bool:
    try:
        m.MESSAGE.validate_python(plain)
    except ValidationError:
        return False
    return True


@pytest.mark.parametrize("kind", ALL)
def test_nonsense_in_any_field_is_refused(kind):
    """Strict pydantic lets NaN, 10**4000 and lists pass where a schema does not forbid them."""
    plain = sample(kind).model_dump()
    fields = [at for at, value in paths(plain) if at != () and not isinstance(value, dict)]
    taken = [
        (at, name)
        for at, (name, nonsense) in itertools.product(fields, NONSENSE.items())
        if is_taken(changed(plain, at, nonsense))
    ]
    assert taken == []


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
