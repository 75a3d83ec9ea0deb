"""One round's bytes through NVFLARE and Flower, beside a round of ours over sockets.

It owns the comparison. Theirs carry the same bytes there and back and do nothing else: unsigned, no
journal, no ledger, no noise, no products. Ours is a whole round of descent with all of these.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from statistics import median

from scripts.benches.federation import made_up, run_federation, trained_ids
from scripts.benches.peer import Found, run_peer
from scripts.benches.rounds import ACTIVE_COLUMNS, PASSIVE_COLUMNS, ROWS, manifest_of_rounds
from scripts.benches.row import Row, times

BYTES = 4 * ROWS  # a residual or a score share as 32-bit integers
PARTNERS = (1, 4)
LIMIT_S = 180.0
# peer -> its program, rounds; what it leaves out
PEERS = {
    "nvflare": ("nvflare_round", 200, "simulator, processes on sockets"),
    "flower": ("flower_round", 20, "simulation on Ray, polls with sleeps"),
}
MISSING = "unsigned, no journal, no ledger, no noise, no products"


def exchange(partners: int, *, turns: int) -> list[Row]:
    """Milliseconds a round, ours and each peer's in turn."""
    ours, theirs = list[float](), dict[str, list[Found | str]]()
    for _ in range(turns):
        ours.append(own_round(partners, 200 // partners))
        for name, (program, rounds, _) in PEERS.items():
            found = run_peer(name, program, partners, rounds, BYTES, limit_s=LIMIT_S)
            theirs.setdefault(name, []).append(found)
    own_s = median(ours)
    rows = list[Row]()
    for name, each in theirs.items():
        what = f"a round, {partners} passive, b = {ROWS}"
        measured = [float(one["wall_s"]) for one in each if not isinstance(one, str)]
        if not measured:
            rows.append(Row(what, _ms(own_s), f"{name} {each[-1]}"))
            continue
        peer_s = median(measured)
        note = f"{name} {_ms(peer_s)} ({PEERS[name][2]}; {MISSING})"
        rows.append(
            Row(
                what,
                _ms(own_s),
                note,
                times(own_s, peer_s),
                key=f"exchange.{name}.{partners}",
                value=own_s / peer_s,
            )
        )
    return rows


def own_round(partners: int, count: int) -> float:
    """Wall seconds of one round of descent over sockets, guarantee sound."""
    ids = trained_ids(ROWS)
    dataset = made_up(ids, ids, (ACTIVE_COLUMNS, PASSIVE_COLUMNS * partners))
    with tempfile.TemporaryDirectory() as folder:
        manifest = manifest_of_rounds("sound", partners, count)
        return run_federation(Path(folder), manifest, dataset).per_round(count)[0]


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.2f} ms"
