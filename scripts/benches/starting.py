"""How long `hdpvfl up` takes, all processes real, with two and with sixteen partners.

It owns the measurement; the command runs as a user would run it.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from statistics import median

from scripts.benches.row import Row
from scripts.benches.training import run_hdpvfl

# partners -> data set, repetitions; the default data has columns for four
SIZES = {2: ("visits", 5), 16: ("breast", 2)}


def starting(passives: int, *, quick: bool) -> Row:
    """Median wall and processor seconds from the command to its summary."""
    (dataset, repeats), taken = SIZES[passives], []
    command = ("up", "--dataset", dataset, "--passives", str(passives))
    for _ in range(1 if quick else repeats):
        with tempfile.TemporaryDirectory() as folder:
            _, wall_s, cpu_s = run_hdpvfl(Path(folder), *command)
        taken.append((wall_s, cpu_s))
    wall_s, cpu_s = (median(each[i] for each in taken) for i in (0, 1))
    return Row(
        f"hdpvfl up on {dataset}, {passives} partners, {passives + 2} processes",
        f"{wall_s:.2f} s, {cpu_s:.2f} s CPU",
        key=f"up.{passives}",
        value=wall_s,
    )
