"""hdpvfl_mq/arrays/packed_marks: what is packed comes back, and missing bytes mark nothing."""

from __future__ import annotations

import numpy as np
import pytest

from hdpvfl_mq.arrays.packed_marks import pack_marks, unpack_marks


@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 1000])
def test_marks_come_back(count):
    mask = np.random.default_rng(count).random(count) < 0.5
    packed = pack_marks(mask)
    assert len(packed) == -(-count // 8)
    found = unpack_marks(packed, count)
    assert (found.dtype, found.tolist()) == (np.bool_, mask.tolist())


def test_the_first_mark_is_the_highest_bit():
    assert pack_marks(np.array([True] + [False] * 8 + [True])) == b"\x80\x40"


@pytest.mark.parametrize("count", [0, 5, 1000, 100_000])
def test_no_bytes_mark_nothing(count):
    """np.unpackbits returns unwritten memory for them."""
    np.full(max(1, count), 255, dtype=np.uint8)  # what may be written there
    assert unpack_marks(b"", count).tolist() == [False] * count


def test_marks_beyond_the_bytes_are_not_set():
    assert unpack_marks(b"\xff", 20).tolist() == [True] * 8 + [False] * 12
