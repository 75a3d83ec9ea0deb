"""The linear code and the bit transpose under it."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from hdpvfl_mq.psi.bits import columns_to_rows, digits, subset_xors, transpose_bits
from hdpvfl_mq.psi.code import (
    LENGTH,
    MESSAGE_BITS,
    encode_columns,
    encode_rows,
    generator_polynomial,
    generator_rows,
)
from hdpvfl_mq.psi.stream import random_pairs

MESSAGES = random_pairs(bytes(32), 4096)
ALL = b"\xff" * 64


def test_dimension_is_that_of_the_bch_code() -> None:
    assert generator_polynomial().bit_length() - 1 == 511 - MESSAGE_BITS
    remainder = (1 << 511) | 1  # the generator of a cyclic code divides x^511 - 1
    while remainder.bit_length() >= generator_polynomial().bit_length():
        shift = remainder.bit_length() - generator_polynomial().bit_length()
        remainder ^= generator_polynomial() << shift
    assert remainder == 0


def test_no_codeword_is_light() -> None:
    words = [encode_rows(MESSAGES, ALL), generator_rows()[:MESSAGE_BITS].view("<u8")]
    pairs = subset_xors(words[1][:2])[3:]
    for group in (*words, pairs):
        assert np.bitwise_count(group).sum(axis=1).min() >= 140


def test_code_is_linear_and_ignores_bits_beyond_the_message() -> None:
    left, right = MESSAGES[:100], MESSAGES[100:200]
    total = encode_rows(left ^ right, ALL)
    assert (total == (encode_rows(left, ALL) ^ encode_rows(right, ALL))).all()
    beyond = left ^ np.array([0, 1 << (MESSAGE_BITS - 64)], dtype=np.uint64)
    assert (encode_rows(beyond, ALL) == encode_rows(left, ALL)).all()


def test_mask_is_applied() -> None:
    mask = bytes(range(64))
    masked = encode_rows(MESSAGES, ALL) & np.frombuffer(mask, dtype="<u8")
    assert (encode_rows(MESSAGES, mask) == masked).all()


def test_columns_and_rows_encode_alike() -> None:
    octets = np.ascontiguousarray(MESSAGES.view(np.uint8).reshape(-1, 16)[:, :10])
    columns = encode_columns(transpose_bits(octets))
    assert columns.shape == (LENGTH, len(MESSAGES) // 8)
    assert (columns_to_rows(columns, 64).view("<u8") == encode_rows(MESSAGES, ALL)).all()


@pytest.mark.parametrize("length", [1, 127, 128, 129, 300])
def test_rows_are_the_same_wherever_a_chunk_ends(length: int) -> None:
    columns = random_pairs(bytes(32), LENGTH * length // 16 + 1).view(np.uint8)
    columns = columns.reshape(-1)[: LENGTH * length].reshape(LENGTH, length)
    rows = columns_to_rows(columns, 64)
    assert (rows[:, : LENGTH // 8] == transpose_bits(columns)).all()
    assert not rows[:, LENGTH // 8 :].any()


def test_turning_columns_into_rows_takes_little_more_than_the_rows() -> None:
    columns = np.zeros((LENGTH, 4096), dtype=np.uint8)
    tracemalloc.start()
    rows = columns_to_rows(columns, 64)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1.25 * rows.nbytes


def test_transpose_moves_each_bit() -> None:
    matrix = MESSAGES[:32].view(np.uint8).reshape(32, 16)
    bits = np.unpackbits(matrix, axis=1, bitorder="little")
    turned = np.unpackbits(transpose_bits(matrix), axis=1, bitorder="little")
    assert (turned == bits.T).all()


def test_digits_read_the_number_from_below() -> None:
    numbers = [int(low) | int(high) << 64 for low, high in MESSAGES[:50]]
    for bits, count in ((8, 10), (12, 4)):
        for place, digit in enumerate(digits(MESSAGES[:50], bits, count)):
            assert digit.tolist() == [n >> (bits * place) & ((1 << bits) - 1) for n in numbers]
