"""How cost grows: rows, columns, and the two large trainings that have a target.

It owns the sizes. Cost is that of a whole run from files to models with the default method, each
party a process; a figure per unit shows whether it grows faster than the data.
"""

from __future__ import annotations

from schemas.config import RunManifest
from schemas.methods import Descent
from scripts.benches.from_files import Measured, from_files, one_round
from scripts.benches.rounds import manifest_of_rounds
from scripts.benches.row import Row

ROWS = (1_000, 10_000, 100_000, 1_000_000)
COLUMNS = (4, 40, 400)
AT_COLUMNS, AT_ROWS = 20, 10_000
LARGE_ROWS, LARGE_COLUMNS, LARGE_PARTNERS = 1_000_000, 100, 5
EPOCH_ROWS, EPOCH_COLUMNS, EPOCH_BATCH, EPOCHS = 100_000, 330, 3_200, 5


def rows_and_columns(*, quick: bool) -> list[Row]:
    """One run for each size; the smallest is the cost of starting, agreeing and ending."""
    found = list[Row]()
    for rows in ROWS[: 3 if quick else None]:
        seen = from_files(one_round(1), rows, AT_COLUMNS)
        found.append(_row(f"{rows:,} rows x {AT_COLUMNS}", seen, rows, "rows", "row"))
    for columns in COLUMNS[: 2 if quick else None]:
        seen = from_files(one_round(1), AT_ROWS, columns)
        found.append(_row(f"{AT_ROWS:,} rows x {columns}", seen, columns, "columns", "column"))
    return found


def _row(what: str, seen: Measured, size: int, axis: str, unit: str) -> Row:
    each_us = 1e6 * seen.cpu_s / size
    return Row(
        f"a run from files to models, {what}, 1 partner",
        f"{seen.wall_s:.2f} s, {seen.cpu_s:.2f} s CPU",
        f"{each_us:,.1f} us CPU a {unit}; entity resolution {seen.resolution_s:.2f} s, "
        f"training {seen.training_s:.2f} s",
        key=f"growth.{axis}.{size}",
        value=seen.wall_s,
        cpu_value=seen.cpu_s,
    )


def one_million() -> Row:
    """One-round training of a million rows with five partners, from files to models."""
    seen = from_files(one_round(LARGE_PARTNERS), LARGE_ROWS, LARGE_COLUMNS)
    return Row(
        f"one-round training, {LARGE_ROWS:,} x {LARGE_COLUMNS}, {LARGE_PARTNERS} partners",
        f"{seen.wall_s:.1f} s, {seen.cpu_s:.1f} s CPU",
        f"entity resolution {seen.resolution_s:.1f} s, training {seen.training_s:.1f} s; "
        f"a party at most {seen.beyond_data_mib:.0f} MiB beyond its data",
        key="one_round.million",
        value=seen.wall_s,
    )


def epoch() -> Row:
    """An epoch of descent over 100,000 x 330; FATE publishes 19 s in plain text on 16 cores."""
    base = manifest_of_rounds("sound", 1, EPOCHS)
    method = Descent(**{**dict(base.method), "batch_rows": EPOCH_BATCH})
    seen = from_files(RunManifest(**{**dict(base), "method": method}), EPOCH_ROWS, EPOCH_COLUMNS)
    each_s = seen.training_s / EPOCHS
    return Row(
        f"an epoch of descent, {EPOCH_ROWS:,} x {EPOCH_COLUMNS}, 1 partner, b = {EPOCH_BATCH:,}",
        f"{each_s:.3f} s",
        f"of {EPOCHS}; reading, entity resolution and the end of the run are not counted",
        key="epoch.large",
        value=each_s,
    )
