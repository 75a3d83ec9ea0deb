"""Benchmarks of entity resolution: against openmined-psi and SPU, ids per second, on sockets.

It owns the comparison; the sessions without transport are in psi_sessions.py.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from schemas.config import AlignmentSpec, IdRules, RunManifest
from schemas.methods import Descent
from scripts.benches.federation import made_up, run_federation, trained_ids
from scripts.benches.peer import Found, run_peer
from scripts.benches.psi_sessions import measure
from scripts.benches.row import Row, times

# peer and its program -> what it is; SPU offers RR22 and KKRT against semi-honest parties only
PEERS: dict[str, tuple[tuple[str, ...], str]] = {
    "openmined-psi": (("openmined-psi", "openmined_psi"), "no transport, semi-honest"),
    "SPU RR22": (("spu", "spu_psi", "RR22"), "link in memory, semi-honest, with reading CSV"),
    "SPU KKRT": (("spu", "spu_psi", "KKRT"), "link in memory, semi-honest, with reading CSV"),
}
ONCE = ("openmined-psi", "SPU KKRT")  # the slow ones are measured in the first turn only
LIMIT_S = 600.0


def against_peers(ids: int, peers: tuple[str, ...], *, turns: int) -> list[Row]:
    """Two parties and the same ids, ours and theirs in turn; ours against malicious parties."""
    what = f"entity resolution, 2 parties, {ids:,} ids"
    ours, theirs = list[dict[str, float]](), dict[str, list[Found | str]]()
    for turn in range(turns):
        ours.append(measure("oprf", parties=2, ids=ids))
        for name in peers:
            if turn and name in ONCE:
                continue
            (peer, program, *arguments), _ = PEERS[name]
            found = run_peer(peer, program, *arguments, ids, limit_s=LIMIT_S)
            theirs.setdefault(name, []).append(found)
    own = {key: median(each[key] for each in ours) for key in ("wall_s", "cpu_s")}
    return [_row(what, ids, own, name, found) for name, found in theirs.items()]


def _row(
    what: str, ids: int, own: dict[str, float], name: str, found: Sequence[Found | str]
) -> Row:
    shown = f"{own['wall_s']:.2f} s, {own['cpu_s']:.2f} s CPU"
    measured = [each for each in found if not isinstance(each, str)]
    if not measured:
        return Row(what, shown, f"{name} {found[-1]}")
    wall_s, cpu_s = (median(each[key] for each in measured) for key in ("wall_s", "cpu_s"))
    return Row(
        what,
        shown,
        f"{name} {wall_s:.1f} s, {cpu_s:.1f} s CPU ({PEERS[name][1]})",
        times(own["wall_s"], wall_s),
        times(own["cpu_s"], cpu_s),
        key=f"resolution.{name.replace(' ', '-')}.{ids}",
        value=own["wall_s"] / wall_s,
    )


def speed(parties: int, ids: int) -> Row:
    """Ids per second without a transport, with one process per party."""
    seen = measure("oprf", parties=parties, ids=ids)
    return Row(
        f"entity resolution, {parties} parties, {ids:,} ids",
        f"{seen['ids_per_s']:,} ids/s, {seen['wall_s']:.1f} s, {seen['cpu_s']:.1f} s CPU",
        f"peak of a party {seen['peak_mib']:.0f} MiB, {seen['ids_mib']:.0f} before it began",
        key=f"resolution.{parties}.{ids}",
        value=seen["wall_s"],
    )


def over_sockets(ids: int) -> tuple[Row, Row]:
    """Entity resolution end to end: files, broker, CURVE, signatures, journals, two parties."""
    bare = measure("oprf", parties=2, ids=ids)
    known = trained_ids(ids + ids // 2)  # half of each set is common
    dataset = made_up(known[:ids], known[ids // 2 :], (1, 1))
    manifest = RunManifest(
        run="bench",
        active_party="active",
        passive_parties=("passive-1",),
        guarantee="none",
        method=Descent(epochs=1, batch_rows=10**9),
        alignment=AlignmentSpec(ids=IdRules(kind="integer"), rows_min=1, reuse=False),
    )
    with tempfile.TemporaryDirectory() as folder:
        seen = run_federation(Path(folder), manifest, dataset)
        size = sum(path.stat().st_size for path in Path(folder).rglob("active/journal.db*"))
    wall_s = seen.at["training"] - seen.at["aligning"]
    cpu_s = seen.cpu_between("aligning", "training")
    sent = sum(s.get("bytes_sent", 0) for s in seen.statuses.values()) / 2**20
    parties = {name: peak for name, peak in seen.peak_mib.items() if name != "coordinator"}
    what = f"entity resolution over sockets, 2 parties, {ids:,} ids"
    ours = f"{wall_s:.1f} s, {cpu_s:.1f} s CPU, {sent:.0f} MiB sent"
    against = f"sessions alone {bare['wall_s']:.1f} s, {bare['cpu_s']:.1f} s CPU, "
    against += f"{bare['sent_mib']:.0f} MiB"
    ratios = times(wall_s, bare["wall_s"]), times(cpu_s, bare["cpu_s"])
    peaks = ", ".join(f"{name} {peak:.0f}" for name, peak in parties.items())
    memory = Row(
        "  peak memory with table and journal, MiB",
        f"{peaks}, broker {seen.peak_mib['coordinator']:.0f}",
        f"sessions alone {bare['peak_mib']:.0f}; journal on disk {size / 2**20:.0f} MiB",
    )
    return Row(what, ours, against, *ratios), memory
