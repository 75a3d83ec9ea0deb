"""Splits of rows and columns: test rows, overlapping parties, several passive parties.

It owns splits that depend on ids and public seeds only, so that parties agree without messages; it
knows no values.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from hdpvfl_mq.data.tables import Column, Table
from hdpvfl_mq.errors import SettingsError


def fractions(ids: Column, seed: str) -> NDArray[np.float64]:
    """A number in [0, 1) for each id, the same at every party for the same public seed."""
    key = hashlib.sha256(seed.encode()).digest()
    digests = [
        hashlib.blake2b(str(cell).encode(), digest_size=8, key=key).digest()
        for cell in ids.tolist()
    ]
    # 53 bits, so that the largest is still below 1.
    return np.asarray((np.frombuffer(b"".join(digests), ">u8") >> 11) * 2.0**-53)


def held_out(ids: Column, *, seed: int, fraction: float = 0.2) -> NDArray[np.bool_]:
    """A mask of the rows held out for testing; it depends on each id separately."""
    if not 0.0 < fraction < 1.0:
        raise SettingsError("the test fraction must lie between 0 and 1")
    return np.asarray(fractions(ids, f"test/{seed}") < fraction)


def deal(table: Table, parts: int, *, keep: Sequence[str] = ("id",)) -> tuple[Table, ...]:
    """Deal columns in turn to several parties; each keeps the id."""
    features = [name for name in table.names if name not in keep]
    if not 1 <= parts <= len(features):
        raise SettingsError(
            f"{len(features)} columns cannot be split among {parts} passive parties"
        )
    return tuple(table.select([*keep, *features[part::parts]]) for part in range(parts))


def overlapping(active: Table, passive: Table) -> tuple[Table, Table]:
    """Remove disjoint sets of one id in eleven from each side, so that each has rows of its own."""
    ranks = np.argsort(fractions(active["id"], "overlap"), kind="stable")
    ordered = [str(cell) for cell in active["id"][ranks].tolist()]
    part = len(ordered) // 11
    only_passive, only_active = set(ordered[:part]), set(ordered[part : 2 * part])
    return _without(active, only_passive), _without(passive, only_active)


def _without(table: Table, gone: set[str]) -> Table:
    return table.take(np.array([str(cell) not in gone for cell in table["id"].tolist()]))
