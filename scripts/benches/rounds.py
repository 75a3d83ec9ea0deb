"""Compare rounds of descent over sockets with the same arithmetic in numpy, and sound with none.

It owns the comparison. The federation runs production code; its passive parties share two
processes.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from hdpvfl_mq.methods.recommend import sound_descent
from schemas.config import AlignmentSpec, IdRules, RunManifest
from schemas.envelope import PROTOCOL_VERSION
from schemas.methods import Descent
from schemas.model import LossSpec
from schemas.privacy import Budget
from scripts.benches.federation import made_up, run_federation, trained_ids
from scripts.benches.row import Row, times

ROWS = 3200  # in a batch, and in total
ACTIVE_COLUMNS, PASSIVE_COLUMNS = 10, 5
LOCAL_STEPS = 3


def manifest_of_rounds(guarantee: str, passives: int, rounds: int) -> RunManifest:
    """A run of descent with this many passive parties and rounds."""
    names = tuple(f"passive-{number}" for number in range(1, passives + 1))
    run, budget = f"bench-{guarantee}", Budget(epsilon=1.0, delta=0.01)
    base = sound_descent(run, ("active", names), budget, LossSpec(name="logistic"))
    changes: dict[str, Any] = {
        "method": Descent(**{**dict(base.method), "epochs": rounds}),
        "alignment": AlignmentSpec(ids=IdRules(kind="integer"), rows_min=50, reuse=False),
        "wire": PROTOCOL_VERSION,
    }
    if guarantee == "none":
        changes |= {"guarantee": "none", "budget": None}
    return RunManifest(**{**dict(base), **changes})


def rounds(passives: int, count: int) -> list[Row]:
    """Seconds per round, measured in turn: numpy, guarantee sound, guarantee none."""
    ids = trained_ids(ROWS)
    dataset = made_up(ids, ids, (ACTIVE_COLUMNS, PASSIVE_COLUMNS * passives))
    plain = _plain(passives, max(20, count))
    measured = {}
    for guarantee in ("sound", "none"):
        with tempfile.TemporaryDirectory() as folder:
            manifest = manifest_of_rounds(guarantee, passives, count)
            seen = run_federation(Path(folder), manifest, dataset)
        measured[guarantee] = seen.per_round(count)
    sound, none = measured["sound"], measured["none"]
    what = f"a round over sockets, {passives} passive, b = {ROWS}"
    return [
        Row(what, _ms(sound), f"numpy {_ms(plain)}", *_ratios(sound, plain)),
        Row("  guarantee sound", _ms(sound), f"guarantee none {_ms(none)}", *_ratios(sound, none)),
    ]


def _ms(pair: tuple[float, float]) -> str:
    return f"{1e3 * pair[0]:.2f} ms, {1e3 * pair[1]:.2f} ms CPU"


def _ratios(ours: tuple[float, float], theirs: tuple[float, float]) -> tuple[str, str]:
    return times(ours[0], theirs[0]), times(ours[1], theirs[1])


def _plain(passives: int, count: int) -> tuple[float, float]:
    """Only the products and updates of a round, in one process."""
    dice = np.random.default_rng(0)
    X = dice.normal(size=(ROWS, ACTIVE_COLUMNS + 1))
    blocks = [dice.normal(size=(ROWS, PASSIVE_COLUMNS)) for _ in range(passives)]
    y = dice.integers(0, 2, ROWS)
    w, ws = np.zeros(X.shape[1]), [np.zeros(PASSIVE_COLUMNS) for _ in blocks]
    began, cpu = time.perf_counter(), time.process_time()
    for _ in range(count):
        received = sum(block @ v for block, v in zip(blocks, ws, strict=True))
        residual = 1.0 / (1.0 + np.exp(-(X @ w + received))) - y
        for _ in range(LOCAL_STEPS):
            r = 1.0 / (1.0 + np.exp(-(X @ w + received))) - y
            w = w - 0.1 * (X.T @ r) / ROWS
        ws = [v - 0.1 * (block.T @ residual) / ROWS for block, v in zip(blocks, ws, strict=True)]
    return (time.perf_counter() - began) / count, (time.process_time() - cpu) / count
