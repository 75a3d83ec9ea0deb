"""A linear binary code of large distance.

It owns the code and its two encoders; it knows no protocol. The narrow-sense BCH code of length 511
with 76 message bits has distance at least 171; without its last 31 places it has length 480 and
distance at least 140. Two elements with different messages therefore differ in at least 140 places
that a sender keeps secret, more than the 128 that security requires.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from hdpvfl_mq.psi.bits import digits, subset_xors
from hdpvfl_mq.psi.stream import Octets, Words

LENGTH = 480
MESSAGE_BITS = 76
MESSAGE_BYTES = 10  # the last 4 bits are not encoded
ROW_BYTES = 64  # a codeword in memory: one cache line, the last 4 bytes zero
_FIELD_BITS, _FIELD_POLYNOMIAL = 9, 0b1000010001  # x^9 + x^4 + 1, primitive
_ORDER = (1 << _FIELD_BITS) - 1
_ERRORS = 85
_CHUNK = 1 << 13


@cache
def generator_polynomial() -> int:
    """The product of x - alpha^r over all conjugates of alpha^1 .. alpha^170, as bits."""
    power = [1]
    for _ in range(_ORDER - 1):
        doubled = power[-1] << 1
        power.append(doubled ^ _FIELD_POLYNOMIAL if doubled >> _FIELD_BITS else doubled)
    logarithm = {value: exponent for exponent, value in enumerate(power)}
    roots = {(r << k) % _ORDER for r in range(1, 2 * _ERRORS + 1) for k in range(_FIELD_BITS)}
    coefficients = [1]  # over GF(512), lowest first
    for root in sorted(roots):
        shifted = [0, *coefficients]
        for place, c in enumerate(coefficients):
            if c:
                shifted[place] ^= power[(logarithm[c] + root) % _ORDER]
        coefficients = shifted
    return sum(c << place for place, c in enumerate(coefficients))


@cache
def generator_rows() -> Octets:
    """Row i is the codeword of message bit i; rows of the bits that are not encoded are zero."""
    polynomial = generator_polynomial()
    rows = np.zeros((8 * MESSAGE_BYTES, ROW_BYTES), dtype=np.uint8)
    for bit in range(MESSAGE_BITS):
        word = (polynomial << bit) & ((1 << LENGTH) - 1)
        rows[bit] = np.frombuffer(word.to_bytes(ROW_BYTES, "little"), dtype=np.uint8)
    return rows


def encode_columns(message_columns: Octets) -> Octets:
    """Codewords of many messages, both as bit columns: (80, n) bytes to (480, n) bytes."""
    bits = np.unpackbits(generator_rows(), axis=1, bitorder="little")[:, :LENGTH]
    chosen = np.packbits(bits, axis=0, bitorder="little").astype(np.intp)  # (10, 480)
    length = message_columns.shape[1]
    code_columns = np.zeros((LENGTH, length), dtype=np.uint8)
    for start in range(0, length, _CHUNK):
        part = message_columns[:, start : start + _CHUNK]
        for group in range(MESSAGE_BYTES):
            xors = subset_xors(part[8 * group : 8 * group + 8])
            code_columns[:, start : start + _CHUNK] ^= xors.take(chosen[group], axis=0)
    return code_columns


def encode_rows(messages: Words, mask: bytes) -> Words:
    """Codewords of 128-bit rows (first 76 bits), each AND the mask, as rows of 8 words."""
    masked = (generator_rows() & np.frombuffer(mask, dtype=np.uint8)).view("<u8")
    tables = [subset_xors(masked[first : first + 8]) for first in range(0, 8 * MESSAGE_BYTES, 8)]
    codewords = np.zeros((len(messages), ROW_BYTES // 8), dtype=np.uint64)
    for start in range(0, len(messages), _CHUNK):
        part = codewords[start : start + _CHUNK]
        places = digits(messages[start : start + _CHUNK], 8, MESSAGE_BYTES)
        for table, place in zip(tables, places, strict=True):
            part ^= table.take(place, axis=0)
    return codewords
