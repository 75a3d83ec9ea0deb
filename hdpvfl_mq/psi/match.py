"""From function outputs to common elements.

It owns what passive parties send after F; it knows no OPRF. One passive party: it sends F(y) of its
elements in sorted order, and the active party looks for its own. Several (Kolesnikov, Matania,
Pinkas, Rosulek and Trieu 2017): passive party i sends a key-value store with F_i(y) xor share_i(y);
the shares of all passive parties cancel at any element. So the active party finds zero exactly
where all parties have the element, and randomness elsewhere, whichever parties have the element.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hdpvfl_mq.psi.elements import find_pairs
from hdpvfl_mq.psi.store import Cells, locate, look_up, solve, store_cells
from hdpvfl_mq.psi.stream import Words, derive, permute_pairs

PAIR_BYTES = 16


def zero_share(elements: Words, pair_keys: Sequence[bytes], bucket: int) -> Words:
    """This party's share at each element; the shares of all passive parties add up to zero."""
    share = np.zeros_like(elements)
    for key in pair_keys:
        share ^= permute_pairs(derive(key, "zero share", bucket), elements)
    return share


def packed_bytes(capacity: int, passives: int) -> int:
    """Length of the answer of a passive party with `capacity` elements."""
    return PAIR_BYTES * (capacity if passives == 1 else store_cells(capacity))


def pack_sorted(pairs: Words) -> bytes:
    """Sort 128-bit rows by their first word, which hides the order in which a party keeps them."""
    return pairs[np.argsort(pairs[:, 0])].tobytes()


def pack_store(values: Words, elements: Words, seed: bytes, key: bytes) -> bytes:
    """A store of one value per element, laid out by the public seed, filled by the secret key."""
    return solve(locate(elements, len(elements), seed), values, key).tobytes()


def differences(outputs: Words, packed: bytes, cells: Cells | None) -> Words:
    """One passive party's summand at each of the active party's elements.

    The summands of all passive parties add up to zero where all have the element. `cells` are those
    of a store; None if there is one passive party, which sends its values without a store.

    *Bound*: an element is wrongly found with probability 2^-128, times the pairs compared.
    """
    values: Words = np.frombuffer(packed, "<u8").reshape(-1, 2)
    if cells is not None:
        return outputs ^ look_up(values, cells)
    missing = np.zeros_like(outputs)
    missing[find_pairs(outputs, values) < 0] = 1
    return missing


def pack_verdict(count: int | None) -> bytes:
    """Pack the number of common ids; None says only that it is outside the agreed bounds."""
    return bytes(8) if count is None else (count + 1).to_bytes(8, "big")


def read_verdict(payload: bytes) -> int | None:
    """The number in a verdict of 8 bytes, or None if it is withheld."""
    number = int.from_bytes(payload, "big")
    return number - 1 if number else None
