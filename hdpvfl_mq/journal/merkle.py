"""Merkle trees over a journal's record digests, as RFC 9162 (section 2.1) defines them.

It owns the tree hash, the growing tree of a live journal and inclusion proofs; it is pure and knows
no record. Every envelope states size and root of its sender's tree, so whoever has such an envelope
can be shown that one record is in that journal without being shown any other.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

EMPTY = hashlib.sha256(b"").digest()


def leaf(digest: bytes) -> bytes:
    """Hash of one entry; the prefix keeps leaves and nodes apart."""
    return hashlib.sha256(b"\x00" + digest).digest()


def node(left: bytes, right: bytes) -> bytes:
    """Hash of an inner node."""
    return hashlib.sha256(b"\x01" + left + right).digest()


class Tree:
    """A tree that grows by one entry at a time and keeps one hash for each bit of its size."""

    def __init__(self, size: int = 0, peaks: Sequence[bytes] = ()) -> None:
        self.size = size
        self._peaks = list(peaks)

    @property
    def peaks(self) -> tuple[bytes, ...]:
        """Roots of the full subtrees, largest first: with the size, all there is to keep."""
        return tuple(self._peaks)

    def append(self, digest: bytes) -> None:
        """Add one entry."""
        peak, size = leaf(digest), self.size
        while size & 1:
            peak = node(self._peaks.pop(), peak)
            size >>= 1
        self._peaks.append(peak)
        self.size += 1

    def root(self) -> bytes:
        """The tree hash of everything appended so far."""
        if not self._peaks:
            return EMPTY
        root = self._peaks[-1]
        for peak in reversed(self._peaks[:-1]):
            root = node(peak, root)
        return root


def root_of(digests: Sequence[bytes]) -> bytes:
    """The tree hash of a whole list."""
    tree = Tree()
    for digest in digests:
        tree.append(digest)
    return tree.root()


def inclusion_path(digests: Sequence[bytes], index: int) -> tuple[bytes, ...]:
    """The hashes that lead from entry `index` to the root, the lowest first."""
    if not 0 <= index < len(digests):
        raise ValueError(f"entry {index} is not in a tree of {len(digests)}")
    if len(digests) == 1:
        return ()
    split = 1 << (len(digests) - 1).bit_length() - 1
    if index < split:
        return (*inclusion_path(digests[:split], index), root_of(digests[split:]))
    return (*inclusion_path(digests[split:], index - split), root_of(digests[:split]))


def root_from_path(digest: bytes, index: int, size: int, path: Sequence[bytes]) -> bytes | None:
    """The root that a path proves, or None where it does not fit index and size."""
    if not 0 <= index < size:
        return None
    position, last, root = index, size - 1, leaf(digest)
    for step in path:
        if last == 0:
            return None
        if position & 1 or position == last:
            root = node(step, root)
            while not position & 1 and position:
                position, last = position >> 1, last >> 1
        else:
            root = node(root, step)
        position, last = position >> 1, last >> 1
    return root if last == 0 else None
