"""Hashing in bulk gives the bytes of hashing one by one, for any lengths."""

from __future__ import annotations

from hashlib import blake2b

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from hdpvfl_mq.psi.curve import in_blocks
from hdpvfl_mq.psi.stream import digests


@given(st.binary(max_size=200), st.lists(st.binary(max_size=300)))
def test_digests_are_those_of_prefix_and_part(prefix, parts):
    one_by_one = [blake2b(prefix + part, digest_size=16).digest() for part in parts]
    found = digests(prefix, parts)
    assert found.tobytes() == b"".join(one_by_one)
    assert found.shape == (len(parts), 2)
    assert found.dtype == np.dtype("<u8")


@given(st.binary(max_size=400), st.integers(1, 97))
def test_blocks_are_consecutive_slices(data, size):
    assert in_blocks(data, size) == [data[k : k + size] for k in range(0, len(data), size)]


def test_blocks_keep_zeros_at_their_ends():
    assert in_blocks(bytes(64), 32) == [bytes(32), bytes(32)]
