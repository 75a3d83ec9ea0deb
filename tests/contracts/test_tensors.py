"""Arrays that travel: exact, read-only, of few types, and at most one in an envelope."""

from __future__ import annotations

import hashlib
import typing
from typing import Any

import numpy as np
import pytest
from pydantic import BaseModel, ValidationError

from schemas import envelope
from schemas.tensor import Tensor
from tests.contracts.test_schemas import leaves
from tests.samples import KINDS


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
