"""What the proofs of entity resolution cost: the same sessions with and without them.

It owns the old, semi-honest form of `oprf`, for comparison only: no mask rows, no proof, no check.
It changes the functions of this process and of those it forks; no setting of a party reaches it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np

from hdpvfl_mq.psi import ot_oprf
from hdpvfl_mq.psi.ot_oprf import OtQuery
from hdpvfl_mq.psi.stream import Octets
from scripts.benches.psi_sessions import measure
from scripts.benches.row import Row, times


def _no_mask(query: OtQuery, peer: str) -> Octets:
    return np.zeros((len(query.messages), 0), dtype=np.uint8)


@contextmanager
def without_proofs() -> Iterator[None]:
    """Let queries of this process carry one zero byte in the place of a proof."""
    changes: dict[str, Any] = {
        "MASK_BYTES": 0,
        "PROOF_BYTES": 1,
        "challenge": lambda *_: b"",
        "prove": lambda *_: b"\0",
        "is_proved": lambda *_: True,
    }
    with patch.multiple(ot_oprf, **changes), patch.object(OtQuery, "_mask", _no_mask):
        yield


def proofs(ids: int) -> Row:
    """Two parties, in turns, twice each; the smaller processor time of each counts."""
    with_them, without = [], []
    for _ in range(2):
        with_them.append(measure("oprf", parties=2, ids=ids))
        with without_proofs():
            without.append(measure("oprf", parties=2, ids=ids))
    ours, theirs = (min(seen, key=lambda one: one["cpu_s"]) for seen in (with_them, without))
    sent = ours["sent_mib"] / theirs["sent_mib"]
    return Row(
        f"entity resolution with proofs, 2 parties, {ids:,} ids",
        f"{ours['wall_s']:.1f} s, {ours['cpu_s']:.1f} s CPU, {ours['sent_mib']:.1f} MiB",
        f"without proofs {theirs['wall_s']:.1f} s, {theirs['cpu_s']:.1f} s CPU, "
        f"{theirs['sent_mib']:.1f} MiB: {sent:.3f} x the bytes",
        times(ours["wall_s"], theirs["wall_s"]),
        times(ours["cpu_s"], theirs["cpu_s"]),
    )


if __name__ == "__main__":
    print(proofs(1_000_000))
