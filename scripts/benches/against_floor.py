"""A round of descent over sockets against its floor, and guarantee sound against none.

It owns the comparison. Floor, sound and none are measured in turn, several times; a result is the
median of the ratios of neighbours, so a machine that slows down slows all three.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from statistics import median

from scripts.benches.federation import Watched, made_up, run_federation, trained_ids
from scripts.benches.floor import floor
from scripts.benches.rounds import ACTIVE_COLUMNS, PASSIVE_COLUMNS, ROWS, manifest_of_rounds
from scripts.benches.row import Row, times

# passive parties -> rounds of one measurement, repetitions in a recorded and in a quick run
SIZES = {1: (300, 5, 2), 8: (100, 3, 1), 64: (30, 2, 1)}
DATA_MIB = ROWS * 8 * (ACTIVE_COLUMNS + 1) / 2**20


def against_floor(passives: int, *, quick: bool) -> list[Row]:
    """Ratios of wall and processor time, and the peak memory of the active party."""
    count, repeats, few = SIZES[passives]
    measured = [_once(passives, count) for _ in range(few if quick else repeats)]
    seen, peak_mib = [pairs for pairs, _ in measured], max(peak for _, peak in measured)
    bare, sound, none = (_middle([each[k] for each in seen]) for k in range(3))
    ratios = [median(each[1][i] / each[0][i] for each in seen) for i in (0, 1)]
    noised = [median(each[1][i] / each[2][i] for each in seen) for i in (0, 1)]
    what = f"a round over sockets, {passives} passive, b = {ROWS}"
    return [
        Row(
            what,
            _ms(sound),
            f"floor {_ms(bare)}",
            times(ratios[0], 1.0),
            times(ratios[1], 1.0),
            key=f"round.{passives}",
            value=ratios[0],
            cpu_value=ratios[1],
        ),
        Row(
            "  guarantee sound",
            _ms(sound),
            f"guarantee none {_ms(none)}",
            times(noised[0], 1.0),
            times(noised[1], 1.0),
            key=f"sound.{passives}",
            value=noised[0],
            cpu_value=noised[1],
        ),
        Row(
            "  peak memory of the active party",
            f"{peak_mib:.0f} MiB",
            f"its data {DATA_MIB:.1f} MiB",
            key=f"memory.{passives}",
            value=peak_mib - DATA_MIB,
        ),
    ]


Pair = tuple[float, float]


def _once(passives: int, count: int) -> tuple[tuple[Pair, Pair, Pair], float]:
    bare, sound = floor(passives, count), _federation("sound", passives, count)
    none = _federation("none", passives, count)
    return (bare, sound.per_round(count), none.per_round(count)), sound.peak_mib["active"]


def _middle(pairs: list[Pair]) -> Pair:
    return median(wall for wall, _ in pairs), median(cpu for _, cpu in pairs)


def _federation(guarantee: str, passives: int, count: int) -> Watched:
    ids = trained_ids(ROWS)
    dataset = made_up(ids, ids, (ACTIVE_COLUMNS, PASSIVE_COLUMNS * passives))
    with tempfile.TemporaryDirectory() as folder:
        manifest = manifest_of_rounds(guarantee, passives, count)
        return run_federation(Path(folder), manifest, dataset)


def _ms(pair: tuple[float, ...]) -> str:
    return f"{1e3 * pair[0]:.2f} ms, {1e3 * pair[1]:.2f} ms CPU"
