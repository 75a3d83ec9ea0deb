"""Benchmarks of entity resolution: against openmined-psi, ids per second, memory on sockets.

It owns the comparison; the sessions without transport are in psi_sessions.py. openmined-psi gets
its own virtual environment, because it pins packages that this project does not pin.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from pathlib import Path

from schemas.config import AlignmentSpec, IdRules, RunManifest
from schemas.methods import Descent
from scripts.benches.ciphers import peer_python
from scripts.benches.federation import made_up, run_federation, trained_ids
from scripts.benches.psi_sessions import measure
from scripts.benches.row import Row, times

PEER_VERSION = "2.0.6"
_PEER = """
import json, sys, time
import private_set_intersection.python as psi
count = int(sys.argv[1])
half = count // 2
mine = ["%016d" % i for i in [*range(half), *range(half, count)]]
theirs = ["%016d" % i for i in [*range(half), *range(count, count + half)]]
began, cpu = time.perf_counter(), time.process_time()
client, server = psi.client.CreateWithNewKey(True), psi.server.CreateWithNewKey(True)
setup = server.CreateSetupMessage(0.0, count, theirs, psi.DataStructure.RAW)
answer = server.ProcessRequest(client.CreateRequest(mine))
found = client.GetIntersection(setup, answer)
assert len(found) == half, len(found)
print(json.dumps({"wall_s": time.perf_counter() - began, "cpu_s": time.process_time() - cpu}))
"""


def against_peer(ids: int) -> Row:
    """Compare both libraries with two parties and the same ids, one after the other."""
    what = f"entity resolution, 2 parties, {ids:,} ids"
    ours = measure("oprf", parties=2, ids=ids)
    shown = f"{ours['wall_s']:.2f} s, {ours['cpu_s']:.2f} s CPU"
    python = peer_python((f"openmined-psi=={PEER_VERSION}",))
    if isinstance(python, str):
        return Row(what, shown, f"openmined-psi skipped: {python}")
    done = subprocess.run(
        [python, "-c", _PEER, str(ids)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        return Row(what, shown, f"openmined-psi failed: {done.stderr.strip()[-80:]}")
    peer = json.loads(done.stdout)
    against = f"openmined-psi {peer['wall_s']:.1f} s, {peer['cpu_s']:.1f} s CPU"
    wall, cpu = times(ours["wall_s"], peer["wall_s"]), times(ours["cpu_s"], peer["cpu_s"])
    ratio = ours["wall_s"] / peer["wall_s"]
    return Row(what, shown, against, wall, cpu, key="resolution", value=ratio)


def speed(parties: int, ids: int) -> Row:
    """Ids per second without a transport, with one process per party."""
    seen = measure("oprf", parties=parties, ids=ids)
    return Row(
        f"entity resolution, {parties} parties, {ids:,} ids",
        f"{seen['ids_per_s']:,} ids/s, {seen['wall_s']:.1f} s, {seen['cpu_s']:.1f} s CPU",
        f"peak of a party {seen['peak_mib']:.0f} MiB, {seen['ids_mib']:.0f} of them its ids",
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
