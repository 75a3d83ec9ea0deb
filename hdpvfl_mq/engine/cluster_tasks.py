"""What a worker of a Dask cluster does: one run of blocks.

It owns what is sent to a worker and what it answers. Nothing here shows a value as text, because
Dask prints what it sends when something goes wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np

from hdpvfl_mq.engine.port import Job, Kernel, Matrix, Piece, Result
from hdpvfl_mq.engine.threads import pin_threads


@dataclass(frozen=True, slots=True)
class Block:
    """A stretch of rows.

    Messages may leave numbers at odd addresses, which numpy copies before each product: X' X would
    then be a product of two matrices, with other bits. So they are aligned when they arrive.
    """

    X: Matrix = field(repr=False)

    def __reduce__(self) -> Any:
        return _block, (self.X,)

    def __sizeof__(self) -> int:
        return int(self.X.nbytes)  # by which the cluster counts its memory


def _block(X: Matrix) -> Block:
    return Block(aligned(X))


def aligned(values: Any) -> Any:
    """The same numbers at addresses that are multiples of their size."""
    return np.require(values, requirements=["C", "A"])


@dataclass(frozen=True, slots=True)
class FilePlace:
    """A matrix in a file that the worker can open."""

    path: str
    shape: tuple[int, int]
    dtype: str

    def mapped(self) -> Matrix:
        """The matrix, read only."""
        return np.memmap(self.path, dtype=self.dtype, mode="r", shape=self.shape)


@dataclass(frozen=True, slots=True)
class Task:
    """A job, and the numeric profile with which it must be computed."""

    job: Job
    profile: Callable[[], str] = field(repr=False)
    wanted: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a task was not computed: a kind of error, or another numeric profile."""

    kind: str = ""
    profile: str = ""


@dataclass(frozen=True, slots=True)
class Read:
    """A kernel on a piece that holds no row, and the numeric profile it must be computed with."""

    kernel: Kernel
    piece: Piece = field(repr=False)
    profile: Callable[[], str] = field(repr=False)
    wanted: str = field(repr=False)


def compute(task: Task, place: FilePlace | int, *blocks: Block) -> list[Result] | Problem:
    """The results of a job's blocks; `place` is a file, or the row the first block begins with."""
    return _guarded(task, lambda: _blocks(task.job, place, blocks))


def read(task: Read) -> Any | Problem:
    """What a kernel finds in the rows of a piece."""
    return _guarded(task, lambda: task.kernel(*task.piece))


def _guarded(task: Task | Read, work: Callable[[], Any]) -> Any | Problem:
    try:
        found = _profile(task.profile)
        return work() if found == task.wanted else Problem(profile=found)
    except Exception as failed:  # noqa: BLE001 - Dask would log the arguments of a task that raises
        return Problem(kind=type(failed).__name__)


def _blocks(job: Job, place: FilePlace | int, blocks: tuple[Block, ...]) -> list[Result]:
    job = replace(job, along=tuple(aligned(vector) for vector in job.along))
    if isinstance(place, FilePlace):
        return list(job.results(place.mapped()))
    return _results(job, place, blocks)


def _results(job: Job, first: int, blocks: tuple[Block, ...]) -> list[Result]:
    """Results of blocks of which some begin in one stretch of rows and end in the next."""
    starts = np.cumsum([first, *(len(block.X) for block in blocks)])
    found: list[Result] = []
    for part in job.parts:
        left, right = np.searchsorted(starts, [part.start, part.stop - 1], side="right") - 1
        pieces = [block.X for block in blocks[left : right + 1]]
        X: Matrix = pieces[0] if len(pieces) == 1 else np.concatenate(pieces)  # type: ignore[assignment]  # all alike
        found += job.of([part]).results(X, int(starts[left]))
    return found


@lru_cache(maxsize=1)
def _profile(profile: Callable[[], str]) -> str:
    """This worker's profile, with one thread for each product."""
    pin_threads()
    return profile()
