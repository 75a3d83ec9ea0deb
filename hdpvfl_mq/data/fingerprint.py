"""The fingerprint of prepared rows: one sha256 over all their values.

It owns the canonical bytes; it knows no format and no settings. The ledger only records a
fingerprint; budgets are never keyed by one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from json.encoder import encode_basestring_ascii

import numpy as np
from numpy.typing import NDArray

from hdpvfl_mq.data.tables import Column


@dataclass(frozen=True)
class OtherColumns:
    """The columns of a chunk besides its features."""

    ids: tuple[Column, ...]
    y: NDArray[np.float64] | None
    weights: NDArray[np.float64] | None
    offset: NDArray[np.float64] | None


class Fingerprint:
    """A running sha256 that does not depend on how a source is split into chunks."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self._names = names
        self._parts = {name: hashlib.sha256() for name in ("X", "ids", "y", "weights", "offset")}

    def add(self, block: NDArray[np.float64], others: OtherColumns) -> None:
        """Add the next rows."""
        self._parts["X"].update(np.ascontiguousarray(block, dtype="<f8").data)
        self._parts["ids"].update(_lines(others.ids))
        for name in ("y", "weights", "offset"):
            values = getattr(others, name)
            if values is not None:
                self._parts[name].update(values.astype("<f8").tobytes())

    def digest(self) -> bytes:
        """The 32 bytes for all rows added."""
        whole = hashlib.sha256(json.dumps([1, self._names]).encode())
        for name in sorted(self._parts):
            whole.update(self._parts[name].digest())
        return whole.digest()


def _lines(ids: tuple[Column, ...]) -> bytes:
    """The ids of each row as json.dumps writes them, one list to a line."""
    rows = map(", ".join, zip(*map(_as_json, ids), strict=True))
    text = "]\n[".join(rows)
    return f"[{text}]\n".encode("ascii") if text else b""


def _as_json(ids: Column) -> Iterator[str]:
    """Every cell as json.dumps writes it; json.dumps is slow for millions of short lists."""
    return map(str if ids.dtype.kind == "i" else encode_basestring_ascii, ids.tolist())
