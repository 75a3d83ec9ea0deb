"""Bit matrices in numpy.

It owns the transpose and the table of XORs; it does not know what the bits mean. Bit i of a row is
bit i % 8, least significant first, of its byte i // 8.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hdpvfl_mq.psi.stream import Octets, Words

_SWAPS = ((7, 0x00AA00AA00AA00AA), (14, 0x0000CCCC0000CCCC), (28, 0x00000000F0F0F0F0))
_CHUNK = 128  # bytes of every column


def transpose_bits(matrix: Octets) -> Octets:
    """A matrix of r rows and 8 c bits as one of 8 c rows and r bits; r is a multiple of 8."""
    height, width = matrix.shape
    blocks = matrix.reshape(height // 8, 8, width).transpose(0, 2, 1).copy().view("<u8")[..., 0]
    for shift, mask in _SWAPS:  # 8 x 8 bits held in one word, by halves
        swapped = (blocks ^ (blocks >> np.uint64(shift))) & np.uint64(mask)
        blocks ^= swapped ^ (swapped << np.uint64(shift))
    octets = blocks[..., np.newaxis].view(np.uint8)
    return octets.transpose(1, 2, 0).reshape(8 * width, height // 8)


def columns_to_rows(columns: Octets, row_bytes: int) -> Octets:
    """Bit columns as byte rows of `row_bytes` bytes; bytes beyond the columns are zero."""
    count, length = columns.shape
    rows = np.zeros((8 * length, row_bytes), dtype=np.uint8)
    for start in range(0, length, _CHUNK):  # with its copies, a chunk stays in the cache
        part = np.ascontiguousarray(columns[:, start : start + _CHUNK])
        rows[8 * start : 8 * (start + part.shape[1]), : count // 8] = transpose_bits(part)
    return rows


def subset_xors(rows: NDArray[Any]) -> NDArray[Any]:
    """The XOR of each of the 2^k subsets of k rows; bit i of an index selects row i."""
    table = np.zeros((1 << len(rows), *rows.shape[1:]), dtype=rows.dtype)
    for bit, row in enumerate(rows):
        table[1 << bit : 2 << bit] = table[: 1 << bit] ^ row
    return table


def digits(pairs: Words, digit_bits: int, count: int) -> list[NDArray[np.intp]]:
    """The first `count` digits of 8 or 12 bits of every 128-bit row, least significant first."""
    octets = pairs.astype("<u8").view(np.uint8).reshape(len(pairs), 16)
    if digit_bits == 8:
        return [octets[:, place].astype(np.intp) for place in range(count)]
    low, middle, high = (
        octets[:, place : 3 * count // 2 : 3].astype(np.intp) for place in range(3)
    )
    pairs_of_digits = zip((low | (middle & 15) << 8).T, (middle >> 4 | high << 4).T, strict=True)
    return [digit for both in pairs_of_digits for digit in both]
