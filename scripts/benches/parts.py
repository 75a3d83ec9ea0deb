"""The parts of a bench in the order they run, each with its time limit and its quick form.

It owns the order: what decides a target comes first, so a run that is cut short has those rows.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from scripts.benches import (
    against_floor,
    ciphers,
    engines,
    exchange,
    growth,
    many,
    party_work,
    reading,
    releases,
    resolution,
    rounds,
    scores,
    semi_honest,
    starting,
    training,
)
from scripts.benches.row import Row

QUICK_PARTNERS = 8  # more take minutes
SETS = ("openmined-psi", "SPU RR22", "SPU KKRT")


@dataclass(frozen=True)
class Scope:
    """How much is measured: everything in a full or recorded run."""

    quick: bool
    cache: Path


@dataclass(frozen=True)
class Part:
    """What is measured, and after how many seconds it is stopped: quick, full."""

    rows: Callable[[Scope], Iterable[Row]]
    quick_s: float
    full_s: float
    is_alone: bool = False  # runs only when it is asked for by name


def _floor(scope: Scope) -> Iterator[Row]:
    for partners in against_floor.SIZES:
        if not scope.quick or partners <= QUICK_PARTNERS:
            yield from against_floor.against_floor(partners, quick=scope.quick)


def _starting(scope: Scope) -> Iterator[Row]:
    for partners in starting.SIZES:
        yield starting.starting(partners, quick=scope.quick)


def _release(scope: Scope) -> Iterable[Row]:
    return releases.release_cost()


def _exchange(scope: Scope) -> Iterator[Row]:
    for partners in exchange.PARTNERS[: 1 if scope.quick else None]:
        yield from exchange.exchange(partners, turns=1 if scope.quick or partners > 1 else 2)


def _resolution(scope: Scope) -> Iterator[Row]:
    if scope.quick:
        yield from resolution.against_peers(100_000, SETS, turns=1)
        return
    yield from resolution.against_peers(100_000, SETS, turns=3)
    yield from resolution.against_peers(1_000_000, SETS[1:], turns=3)
    yield resolution.speed(5, 1_000_000)
    yield semi_honest.proofs(1_000_000)


def _long_peer(scope: Scope) -> Iterator[Row]:
    if not scope.quick:
        yield from resolution.against_peers(1_000_000, SETS[:1], turns=1)


def _growth(scope: Scope) -> Iterator[Row]:
    yield growth.epoch()
    if not scope.quick:
        yield growth.one_million()
    yield from growth.rows_and_columns(quick=scope.quick)


def _many(scope: Scope) -> Iterator[Row]:
    if scope.quick:
        yield from many.many(many.PROCESSES[:1], hosted=False)
        return
    yield from many.many(many.HOSTED, hosted=True)
    yield from many.many(many.PROCESSES[1::2], hosted=False)


def _training(scope: Scope) -> Iterator[Row]:
    further = ("credit",) if os.environ.get("HDPVFL_DATA") and not scope.quick else ()
    for name in ("breast", *further):
        yield from training.training(name)


def _scores(scope: Scope) -> Iterable[Row]:
    return scores.scores()


def _reading(scope: Scope) -> Iterator[Row]:
    yield from reading.reading(scope.cache)


def _ciphers(scope: Scope) -> Iterable[Row]:
    return ciphers.ciphers()


def _fate(scope: Scope) -> Iterator[Row]:
    if not scope.quick:  # minutes
        yield from ciphers.fate()


def _engines(scope: Scope) -> Iterator[Row]:
    if not scope.quick:  # 2.4 GB three times
        yield from engines.engines()


def _work(scope: Scope) -> Iterable[Row]:
    rows = party_work.ROWS // 10 if scope.quick else party_work.ROWS
    return party_work.party_work(scope.cache, (rows, party_work.COLUMNS))


def _sockets(scope: Scope) -> Iterable[Row]:
    return resolution.over_sockets(1_000_000)


def _rounds(scope: Scope) -> Iterator[Row]:
    for partners, count in ((1, 600), (8, 200), (64, 40)):
        yield from rounds.rounds(partners, count)


PARTS: dict[str, Part] = {
    "floor": Part(_floor, 300, 540),
    "starting": Part(_starting, 120, 240),
    "release": Part(_release, 60, 60),
    "exchange": Part(_exchange, 180, 420),
    "resolution": Part(_resolution, 180, 300),
    "growth": Part(_growth, 150, 420),
    "scores": Part(_scores, 120, 180),
    "training": Part(_training, 120, 240),
    "reading": Part(_reading, 180, 180),
    "ciphers": Part(_ciphers, 180, 240),
    "fate": Part(_fate, 60, 600),
    "many": Part(_many, 90, 2400),  # 512 partners take 17 minutes
    "engines": Part(_engines, 60, 240),
    "long peer": Part(_long_peer, 60, 660),
    "work": Part(_work, 300, 1800, is_alone=True),
    "sockets": Part(_sockets, 300, 300, is_alone=True),
    "rounds": Part(_rounds, 600, 600, is_alone=True),
}
