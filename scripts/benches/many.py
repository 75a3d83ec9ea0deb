"""Whole runs with many parties on one machine: time and memory, and how they grow.

It owns the sizes and the rows. Up to 64 partners are processes of their own; more share a few
processes, each with its own keys, ledger, journal and connection. A run is everything from the
start of the processes to the last acknowledgement: entity resolution, agreement, two rounds, end.
"""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from schemas.ids import COORDINATOR
from scripts.benches.federation import Watched, made_up, run_federation, trained_ids
from scripts.benches.rounds import manifest_of_rounds
from scripts.benches.row import Row

ROWS, ROUNDS = 800, 2
PROCESSES = (8, 16, 32, 64)  # partners that are processes of their own
HOSTED = (64, 128, 256, 512)  # partners that share processes
HOSTS = 8


@dataclass(frozen=True)
class Measured:
    """One run."""

    partners: int
    wall_s: float
    cpu_s: float  # of all processes
    broker_mib: float
    active_mib: float
    partner_mib: float  # a partner's share of its process
    copies: float  # envelopes that a party sent again, on average


def many(sizes: tuple[int, ...], *, hosted: bool) -> Iterator[Row]:
    """A run of each size; the exponent says how the processor time grows from size to size."""
    first = before = None
    for partners in sizes:
        found = run(partners, hosts=HOSTS if hosted else partners)
        yield _row(found, before, hosted=hosted)
        first, before = first or found, found
    if hosted and first is not None and before is not None and before is not first:
        yield _overall(first, before)


def _overall(first: Measured, last: Measured) -> Row:
    return Row(
        f"  from {first.partners} to {last.partners} partners",
        f"processor time grows as partners^{_power(first, last):.2f}",
        "1 is linear",
        key=f"many.exponent.{last.partners}",
        value=_power(first, last),
    )


def _power(first: Measured, last: Measured) -> float:
    return math.log(last.cpu_s / first.cpu_s) / math.log(last.partners / first.partners)


def run(partners: int, *, hosts: int) -> Measured:
    """One run with this many partners in this many processes."""
    ids = trained_ids(ROWS)
    dataset = made_up(ids, ids, (5, partners))
    manifest = manifest_of_rounds("sound", partners, ROUNDS)
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        seen = run_federation(Path(folder), manifest, dataset, hosts=hosts)
        wall_s = time.perf_counter() - began
    return Measured(
        partners,
        wall_s,
        sum(seen.cpu_at["closed"].values()),
        seen.peak_mib["coordinator"],
        seen.peak_mib["active"],
        _hosts_mib(seen) / partners,
        _copies(seen),
    )


def _copies(seen: Watched) -> float:
    """How often a party sent an envelope again; all must have completed the run."""
    parties = {name: said for name, said in seen.statuses.items() if name != COORDINATOR}
    if wrong := sorted(n for n, said in parties.items() if said.get("outcome") != "completed"):
        raise RuntimeError(f"{len(wrong)} parties did not complete the run: {wrong[:5]}")
    return sum(int(said["resends"]) for said in parties.values()) / len(parties)


def _hosts_mib(seen: Watched) -> float:
    return sum(mib for name, mib in seen.peak_mib.items() if name.startswith("passive"))


def _row(found: Measured, before: Measured | None, *, hosted: bool) -> Row:
    where = f"in {HOSTS} processes" if hosted else "as processes"
    growth = ""
    if before is not None:
        growth = f"grows as partners^{_power(before, found):.2f}"
    return Row(
        f"a run with {found.partners} partners {where}",
        f"{found.wall_s:.0f} s, {found.cpu_s:.0f} s CPU, {found.cpu_s / found.partners:.2f} each",
        f"MiB: broker {found.broker_mib:.0f}, active {found.active_mib:.0f}, "
        f"partner {found.partner_mib:.0f}; copies {found.copies:.1f} a party",
        cpu=growth,
        key=f"many.{'hosted' if hosted else 'processes'}.{found.partners}",
        cpu_value=found.cpu_s,
    )
