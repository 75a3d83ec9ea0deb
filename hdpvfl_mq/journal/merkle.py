"""Merkle trees over a journal's record digests, as RFC 9162 (section 2.1) defines them.

It owns the tree hash and the growing tree of a live journal; it is pure and knows no record. Every
envelope states the size and root of its sender's tree.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

EMPTY = hashlib.sha256(b"").digest()


def leaf(digest: bytes) -> bytes:
    """Hash of one entry; the prefix separates leaves from inner nodes."""
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
        """Roots of the full subtrees, largest first; size and peaks are all that must be stored."""
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
