"""The fingerprint of prepared rows: one sha256 over all their values.

It owns the canonical bytes; it knows no format and no settings. The ledger only records a
fingerprint; budgets are never keyed by one.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from json.encoder import encode_basestring_ascii
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from hdpvfl_mq.data import arrow_functions as functions
from hdpvfl_mq.data.tables import Column

TEXT = pa.large_string()


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
    begin, between, end, nothing = (pa.scalar(each, TEXT) for each in ("[", ", ", "]\n", ""))
    rows = functions.joined(map(_as_json, ids), between)
    lines = functions.joined((begin, rows, end), nothing)
    _, bounds, text = lines.buffers()
    size = int(np.frombuffer(bounds, np.int64)[len(lines)])
    return bytes(memoryview(text)[:size]) if size else b""


def _as_json(ids: Column) -> Any:
    """Every cell as json.dumps writes it; json.dumps is slow for millions of short lists."""
    if ids.dtype.kind == "i":
        return functions.cast(pa.array(ids), TEXT)
    return pa.array(map(encode_basestring_ascii, ids.tolist()), TEXT)
