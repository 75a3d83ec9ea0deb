"""One epoch of ours beside epochs under encryption and under secret sharing.

It owns the comparison: 10,000 rows, 10 + 13 columns, batches of 3,200. Ours is a federation over
sockets with everything on; theirs are in one process without a network (FATE: three processes that
pass files), a journal or a ledger, and give the exact result where ours adds noise: they hide the
messages, not what the result tells.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from schemas.config import RunManifest
from schemas.methods import Descent
from scripts.benches.federation import made_up, run_federation, trained_ids
from scripts.benches.peer import Found, run_peer
from scripts.benches.rounds import manifest_of_rounds
from scripts.benches.row import Row, times

ROWS, BATCH, COLUMNS = 10_000, 3_200, (10, 13)
SAMPLE, EPOCHS = 200, 25
ROUNDS = -(-ROWS // BATCH)  # in an epoch
LIMIT_S = 240.0
FATE = {"Paillier 2048": "paillier", "plain text": "mock"}


def ciphers() -> list[Row]:
    """Seconds of an epoch for every peer that is installed; the reason for every other."""
    own_s = own_epoch()
    both = sum(COLUMNS)
    paillier = run_peer("phe", "paillier_epoch", SAMPLE, COLUMNS[1], limit_s=LIMIT_S)
    ckks = run_peer("tenseal", "ckks_epoch", ROWS, COLUMNS[1], limit_s=LIMIT_S)
    shared = run_peer("spu", "spu_epoch", ROWS, both, BATCH, limit_s=LIMIT_S)
    again_s = own_epoch()
    own_s = (own_s + again_s) / 2
    rows = [
        _row(own_s, "phe, Paillier 2048", paillier, "wall_s", ROWS / SAMPLE),
        _row(own_s, "TenSEAL, CKKS", ckks, "wall_s", 1.0),
        _row(own_s, "SPU, SEMI2K", shared, "SEMI2K", 1.0),
        _row(own_s, "SPU, ABY3", shared, "ABY3", 1.0),
    ]
    absent = run_peer("stalactite", "", limit_s=LIMIT_S)
    return [*rows, _row(own_s, "Stalactite", absent, "", 1.0)]


def fate() -> Iterator[Row]:
    """The same for FATE, with and without encryption."""
    for label, cipher in FATE.items():
        own_s = own_epoch()
        found = run_peer("fate", "fate_epoch", ROWS, *COLUMNS, BATCH, cipher, limit_s=LIMIT_S)
        yield _row(own_s, f"FATE, {label}", found, "wall_s", 1.0)


def own_epoch() -> float:
    """Wall seconds of one epoch over sockets, guarantee sound."""
    ids = trained_ids(ROWS)
    base = manifest_of_rounds("sound", 1, EPOCHS)
    method = Descent(**{**dict(base.method), "batch_rows": BATCH})
    manifest = RunManifest(**{**dict(base), "method": method})
    with tempfile.TemporaryDirectory() as folder:
        seen = run_federation(Path(folder), manifest, made_up(ids, ids, COLUMNS))
    return ROUNDS * seen.per_round(ROUNDS * EPOCHS)[0]


def _row(own_s: float, name: str, found: Found | str, key: str, factor: float) -> Row:
    what, ours = f"an epoch, {ROWS:,} x {sum(COLUMNS)}", f"{1e3 * own_s:.1f} ms"
    if isinstance(found, str):
        return Row(what, ours, f"{name} {found}")
    peer_s = float(found[key]) * factor
    note = f", from {ROWS / factor:.0f} rows" if factor > 1 else ""
    return Row(
        what,
        ours,
        f"{name} {peer_s:.2f} s{note}; no network, no noise",
        times(own_s, peer_s),
        key=f"epoch.{name.replace(', ', '.').replace(' ', '')}",
        value=own_s / peer_s,
    )
