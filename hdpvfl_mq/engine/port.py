"""The port to whatever computes a party's products, and the engine that computes in this process.

It owns the contract: a kernel is called once for each block of rows, and its results come back in
the order of the blocks. Blocks are chosen by the caller from public shapes alone, never from the
number of workers. Roles see an engine as a value; it has no clock, file or socket here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import starmap
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from hdpvfl_mq.arrays.chunked import Allocate

Matrix = NDArray[np.float64] | NDArray[np.float32]
Result = Any  # of a block: mostly an array
# A function at the top of a module, so that workers find it by its name. With rows, its first
# argument is a block of them.
Kernel = Callable[..., Result]
Piece = tuple[Any, ...]
R = TypeVar("R")


class UnseenError(Exception):
    """A worker does not see the file that a piece names, or sees a different file of that name."""


@dataclass(frozen=True, slots=True)
class Unseen:
    """The answer of a kernel that met an UnseenError."""


class Rows(Protocol):
    """A matrix stored where an engine's workers can read it."""

    @property
    def X(self) -> Matrix:  # noqa: N802 - the paper's letter
        """The matrix; the caller fills it before the first kernel."""

    def each(
        self,
        kernel: Kernel,
        parts: Sequence[slice],
        *,
        along: tuple[NDArray[Any], ...] = (),
        given: tuple[Any, ...] = (),
    ) -> Iterator[Result]:
        """Yield kernel(X[part], *along[part], *given) for each part, in order.

        Parts are consecutive. `along` are vectors with an entry for each row from the first part's
        start on; `given` is passed as it is.
        """


class Engine(Protocol):
    """Where kernels are computed."""

    def allocate_rows(self, shape: tuple[int, int], dtype: Any) -> Rows:
        """A new matrix, not yet filled."""

    def each(self, kernel: Callable[..., R], pieces: Iterable[Piece]) -> Iterator[R]:
        """Yield kernel(*piece) for each piece, in order.

        Pieces are taken a few at a time, as they are needed. They may hold ids, noise keys and
        un-noised values, so they go to processes of this host alone, never to a cluster.
        """

    def read(self, kernel: Callable[..., R], pieces: Iterable[Piece]) -> Iterator[R | Unseen]:
        """The same for pieces that say where rows are stored and hold none of them.

        So a cluster may be given them. An answer is Unseen if a worker does not see the file.
        Without workers there are no answers: whoever asks can read as well.
        """

    @property
    def sees_ids(self) -> bool:
        """Whether workers may read the ids of rows."""


@dataclass(frozen=True, slots=True)
class Job:
    """One kernel on consecutive blocks; its text shows no value."""

    kernel: Kernel
    parts: tuple[slice, ...]
    along: tuple[NDArray[Any], ...] = field(default=(), repr=False)
    given: tuple[Any, ...] = field(default=(), repr=False)

    def results(self, X: Matrix, first: int = 0) -> Iterator[Result]:
        """The result of each block; `first` is the row with which X begins."""
        base = self.parts[0].start if self.parts else 0
        for part in self.parts:
            block = X[part.start - first : part.stop - first]
            here = slice(part.start - base, part.stop - base)
            yield self.kernel(block, *(vector[here] for vector in self.along), *self.given)

    def of(self, parts: Sequence[slice]) -> Job:
        """The same kernel on some consecutive blocks."""
        base = self.parts[0].start
        here = slice(parts[0].start - base, parts[-1].stop - base)
        return Job(self.kernel, tuple(parts), tuple(v[here] for v in self.along), self.given)

    def runs(self, workers: int, *, each: int) -> list[Job]:
        """Jobs of consecutive blocks that together are this job: about `each` for a worker.

        They become shorter towards the end, so that workers finish at the same time.
        """
        found, left = list[Job](), self.parts
        longest = -(-len(left) // (each * workers))
        while left:
            size = min(longest, -(-len(left) // (2 * workers)))
            found.append(self.of(left[:size]))
            left = left[size:]
        return found

    def __repr__(self) -> str:
        return f"<Job: {name_of(self.kernel)} on {len(self.parts)} blocks>"


def name_of(kernel: Kernel) -> str:
    """A kernel's name for people."""
    return str(getattr(kernel, "__name__", "kernel")).strip("_")


@dataclass(frozen=True)
class LocalRows:
    """A matrix that this process computes with."""

    X: Matrix = field(repr=False)

    def each(
        self,
        kernel: Kernel,
        parts: Sequence[slice],
        *,
        along: tuple[NDArray[Any], ...] = (),
        given: tuple[Any, ...] = (),
    ) -> Iterator[Result]:
        """Compute block after block."""
        return Job(kernel, tuple(parts), along, given).results(self.X)


class WorkersRows(ABC):
    """A matrix that this process holds and that workers compute with."""

    def __init__(self, X: Matrix) -> None:
        self._X = X

    @property
    def X(self) -> Matrix:  # noqa: N802 - the paper's letter
        """The matrix as this process holds it."""
        return self._X

    def each(
        self,
        kernel: Kernel,
        parts: Sequence[slice],
        *,
        along: tuple[NDArray[Any], ...] = (),
        given: tuple[Any, ...] = (),
    ) -> Iterator[Result]:
        """Compute blocks on the workers; a single block is computed here."""
        job = Job(kernel, tuple(parts), along, given)
        return job.results(self._X) if len(parts) < 2 else self._results(job)

    @abstractmethod
    def _results(self, job: Job) -> Iterator[Result]:
        """The result of each block, computed by the workers."""

    def __repr__(self) -> str:
        rows, columns = self._X.shape
        return f"<{type(self).__name__} of {rows} rows and {columns} columns>"

    def __reduce__(self) -> Any:
        raise TypeError("a party's columns cannot leave it")


class LocalEngine:
    """Computes in this process, block after block."""

    def __init__(self, allocate: Allocate = np.empty) -> None:
        self._allocate = allocate

    def allocate_rows(self, shape: tuple[int, int], dtype: Any) -> LocalRows:
        """A matrix in memory, or wherever `allocate` puts it."""
        return LocalRows(self._allocate(shape, dtype))

    def each(self, kernel: Callable[..., R], pieces: Iterable[Piece]) -> Iterator[R]:
        """Compute piece after piece."""
        return starmap(kernel, pieces)

    def read(self, kernel: Callable[..., R], pieces: Iterable[Piece]) -> Iterator[R | Unseen]:
        """Nothing: there are no workers."""
        return iter(())

    sees_ids = True

    def __repr__(self) -> str:
        return "<LocalEngine>"


LOCAL = LocalEngine()
