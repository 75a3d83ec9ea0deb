"""The targets of a bench, and the verdict on each from measured values.

It owns the limits and what was tried for each; it measures nothing and knows no result.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

_ROUND = "see One round by file and What was tried: exact noise, two durable commits and checks"
_SOUND = "exact noise and the ledger's commit; see What was tried"
_WORK = "local decodes with Arrow's threads already; see Engines, What it costs"
_SETS = "arithmetic in numpy beside SPU's C++; see Entity resolution"


@dataclass(frozen=True)
class Target:
    """A measured value must be at most `limit`; `tried` is said where it is not.

    `part` names a part that runs only when it is asked for.
    """

    limit: float
    what: str
    tried: str = ""
    part: str = ""

    def verdict(self, value: float | None) -> str:
        """In words; a value that was not measured is never a success."""
        if value is None:
            alone = f": `python scripts/bench.py --only {self.part}`" if self.part else ""
            return f"not measured{alone}"
        if value <= self.limit:
            return "met"
        return f"**not met**, {value / self.limit:.3g} times the limit" + (
            f": {self.tried}" if self.tried else ""
        )


# key of a row -> what its value must be
TARGETS: dict[str, Target] = {
    "round.1": Target(1.8, "a round, 1 partner, times the floor", _ROUND),
    "round.8": Target(1.6, "a round, 8 partners, times the floor", _ROUND),
    "round.64": Target(1.4, "a round, 64 partners, times the floor", _ROUND),
    "sound.1": Target(1.10, "sound, 1 partner, times none", _SOUND),
    "sound.8": Target(1.10, "sound, 8 partners, times none", _SOUND),
    "sound.64": Target(1.10, "sound, 64 partners, times none", _SOUND),
    "release": Target(
        0.5,
        "one durable release of 3,200 values, ms",
        "two syncs of the disk; one would let the ledger count too little",
    ),
    "up.2": Target(2.5, "hdpvfl up on the default data, s", "see Starting"),
    "up.16": Target(7.0, "hdpvfl up with 16 partners, s", "see Starting"),
    "epoch.large": Target(0.4, "an epoch of descent, 100,000 x 330, s", _ROUND),
    "one_round.million": Target(
        60.0,
        "one-round training, 1,000,000 x 100, 5 partners, files to models, s",
        "five parties resolve a million ids on these cores; see Entity resolution",
    ),
    "resolution.openmined-psi.1000000": Target(
        1 / 30, "entity resolution of 1,000,000 ids, times openmined-psi", _SETS
    ),
    "resolution.SPU-RR22.1000000": Target(
        1.5, "entity resolution of 1,000,000 ids, times SPU's RR22", _SETS
    ),
    "many.exponent.512": Target(
        1.1, "growth of processor time from 64 to 512 partners, exponent", "see Many parties"
    ),
    "memory.1": Target(120.0, "memory of the active party beyond its data, MiB", "see Memory"),
    "exchange.nvflare.1": Target(
        1.0, "a round, 1 partner, times NVFLARE's exchange of the same bytes", _ROUND
    ),
    "exchange.nvflare.4": Target(
        1.0, "a round, 4 partners, times NVFLARE's exchange of the same bytes", _ROUND
    ),
    "reading.csv": Target(3.0, "CSV of 100,000 x 300 ready for training, times pyarrow's own read"),
    "reading.parquet": Target(
        3.0, "Parquet of 100,000 x 300 ready for training, times pyarrow's own"
    ),
    "reading.csv.memory": Target(429.0, "peak memory of that for CSV, MiB: 2 x float32 + 200"),
    "reading.parquet.memory": Target(
        429.0, "peak memory of that for Parquet, MiB: 2 x float32 + 200"
    ),
    "engines.processes": Target(
        1 / 1.6, "all products of 1,000,000 x 300, processes to local, 2 cores"
    ),
    "work.parquet.processes": Target(
        1 / 1.6,
        "Parquet of 1,000,000 x 300 to releases, processes to local, 2 cores",
        _WORK,
        "work",
    ),
    "work.parquet.dask": Target(2.0, "the same, dask to processes", _WORK, "work"),
    "work.csv.processes": Target(
        1 / 1.6, "CSV of 1,000,000 x 300 to releases, processes to local, 2 cores", _WORK, "work"
    ),
    "work.csv.dask": Target(2.0, "the same, dask to processes", _WORK, "work"),
    "engines.dask": Target(2.0, "all products of 1,000,000 x 300, dask to processes"),
}


def table(values: Mapping[str, float | None]) -> list[str]:
    """Every target with what was found, as lines of Markdown."""
    lines = ["| target | at most | found | |", "|---|---|---|---|"]
    for key, target in TARGETS.items():
        value = values.get(key)
        shown = "" if value is None else f"{value:.3g}"
        lines.append(f"| {target.what} | {target.limit:.3g} | {shown} | {target.verdict(value)} |")
    return lines
