"""The engine `processes`: all cores of one host compute blocks of one party's rows.

It owns the workers and hands out blocks. Rows are in mapped memory or files that workers map too,
so no row is ever copied to them; only vectors and results are. A worker that dies is replaced, and
the blocks it had are computed again.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
import weakref
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import count
from multiprocessing.connection import Connection, wait
from multiprocessing.reduction import send_handle
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from hdpvfl_mq.engine.port import Job, Kernel, Matrix, Result, name_of
from hdpvfl_mq.engine.shared_rows import SharedFile
from hdpvfl_mq.engine.worker import Compute, Drop, Failure, Take
from hdpvfl_mq.errors import OperatorError

# A worker gets its share of a job in this many runs of blocks, so that a slow one holds up little.
_RUNS_A_WORKER = 6
_DEATHS_MAX = 3  # of workers on one run of blocks, until the operator must look
_PROGRAM = "from hdpvfl_mq.engine.worker import main; main()"
_ONE_THREAD = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


class _Worker:
    """One worker process and the connection to it."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        with closing(theirs):
            self.process = subprocess.Popen(  # noqa: S603 - this program itself
                [sys.executable, "-P", "-c", _PROGRAM, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                env=_environment(),
                start_new_session=True,  # Ctrl-C is for the party; a worker ends with it
            )
        self.connection = Connection(ours.detach())
        self.held: set[int] = set()
        self.run: int | None = None  # the run of blocks it computes

    def take(self, rows: SharedRows) -> None:
        """Hand over a matrix, once."""
        if rows.number not in self.held:
            file = rows.file
            self.connection.send(Take(rows.number, file.shape, file.dtype.str))
            send_handle(self.connection, file.descriptor, self.process.pid)
            self.held.add(rows.number)

    def end(self) -> None:
        """Close the connection, which ends the process."""
        self.connection.close()
        self.process.wait()


class SharedRows:
    """A matrix that all workers map."""

    def __init__(self, engine: ProcessEngine, number: int, file: SharedFile) -> None:
        self._engine, self.number, self.file = engine, number, file
        self._X = file.mapped()

    @property
    def X(self) -> Matrix:  # noqa: N802 - the paper's letter
        """The matrix as this process maps it."""
        return self._X

    def each(
        self,
        kernel: Kernel,
        parts: Sequence[slice],
        *,
        along: tuple[NDArray[Any], ...] = (),
        given: tuple[Any, ...] = (),
    ) -> Iterator[Result]:
        """Compute blocks on all workers; a single block is computed here."""
        job = Job(kernel, tuple(parts), along, given)
        return job.results(self._X) if len(parts) < 2 else self._engine.results(job, self)

    def __repr__(self) -> str:
        return f"<SharedRows of {self.file.shape[0]} rows and {self.file.shape[1]} columns>"

    def __reduce__(self) -> Any:
        raise TypeError("a party's columns cannot leave it")


class ProcessEngine:
    """Workers of this host, started with the first job and used for all that follow."""

    def __init__(self, workers: int | None = None, folder: Path | None = None) -> None:
        """`folder` is where matrices are stored; None stores them in memory."""
        self._count = workers or len(os.sched_getaffinity(0))
        self._folder = folder
        self._workers: list[_Worker] = []
        self._numbers = count()
        self._dropped: deque[int] = deque()
        self._lock = threading.Lock()

    @property
    def pids(self) -> tuple[int, ...]:
        """The processes that compute."""
        return tuple(worker.process.pid for worker in self._workers)

    def room(self, shape: tuple[int, int], dtype: Any) -> SharedRows:
        """A matrix that workers can map."""
        number, file = next(self._numbers), SharedFile(shape, dtype, self._folder)
        rows = SharedRows(self, number, file)
        weakref.finalize(rows, _forget, self._dropped, number, file)
        return rows

    def each(
        self, kernel: Kernel, parts: Sequence[slice], *, given: tuple[Any, ...] = ()
    ) -> Iterator[Result]:
        """Compute blocks that need no matrix."""
        job = Job(kernel, tuple(parts), (), given)
        return job.results(None) if len(parts) < 2 else self.results(job, None)

    def results(self, job: Job, rows: SharedRows | None) -> Iterator[Result]:
        """The results of a job's blocks, in order; one job at a time."""
        with self._lock:
            self._start()
            jobs = job.runs(_RUNS_A_WORKER * self._count)
            waiting, done = deque(range(len(jobs))), dict[int, list[Result]]()
            deaths = dict.fromkeys(waiting, 0)
            try:
                for number in range(len(jobs)):
                    while number not in done:
                        self._hand_out(jobs, waiting, rows, number)
                        self._collect(jobs, waiting, done, deaths)
                    self._hand_out(jobs, waiting, rows, number)
                    yield from done.pop(number)
            finally:
                self._settle()

    def close(self) -> None:
        """End all workers; the next job starts new ones."""
        with self._lock:
            for worker in self._workers:
                worker.end()
            self._workers = []

    def _start(self) -> None:
        while len(self._workers) < self._count:
            self._workers.append(_Worker())
        while self._dropped:
            number = self._dropped.popleft()
            for worker in self._workers:
                if number in worker.held:
                    worker.held.discard(number)
                    worker.connection.send(Drop(number))

    def _hand_out(
        self, jobs: list[Job], waiting: deque[int], rows: SharedRows | None, wanted: int
    ) -> None:
        """Give idle workers runs that are not too far ahead of the one that is wanted next."""
        for place in range(len(self._workers)):
            while self._workers[place].run is None and waiting:
                if waiting[0] >= wanted + 2 * self._count:
                    return
                try:
                    self._give(self._workers[place], jobs, waiting[0], rows)
                    waiting.popleft()
                except OSError:  # it died while idle, and perhaps all others did: ask the new one
                    self._replace(place)

    def _give(self, worker: _Worker, jobs: list[Job], run: int, rows: SharedRows | None) -> None:
        """Send a run of blocks, after the matrix it needs."""
        if rows is not None:
            worker.take(rows)
        worker.connection.send(Compute(None if rows is None else rows.number, jobs[run]))
        worker.run = run

    def _collect(
        self,
        jobs: list[Job],
        waiting: deque[int],
        done: dict[int, list[Result]],
        deaths: dict[int, int],
    ) -> None:
        """Wait for at least one worker: take its results, or replace it if it died."""
        busy = {
            worker.connection: place
            for place, worker in enumerate(self._workers)
            if worker.run is not None
        }
        for ready in wait(list(busy)):
            assert isinstance(ready, Connection)
            place = busy[ready]
            run = self._workers[place].run
            assert run is not None
            try:
                found = ready.recv()
            except (EOFError, OSError):
                self._replace(place)
                waiting.appendleft(run)
                deaths[run] += 1
                if deaths[run] >= _DEATHS_MAX:
                    raise OperatorError(
                        f"a worker died {_DEATHS_MAX} times while computing "
                        f"{name_of(jobs[run].kernel)}: is there enough memory? set fewer "
                        'engine.workers, or engine.kind = "local"'
                    ) from None
                continue
            self._workers[place].run = None
            if isinstance(found, Failure):
                raise OperatorError(
                    f"a worker could not compute {name_of(jobs[run].kernel)}: {found.kind}"
                )
            done[run] = found

    def _replace(self, place: int) -> None:
        self._workers[place].end()
        self._workers[place] = _Worker()

    def _settle(self) -> None:
        """Discard answers that nobody waits for any more."""
        for place, worker in enumerate(self._workers):
            if worker.run is None:
                continue
            try:
                worker.connection.recv()
                worker.run = None
            except (EOFError, OSError):
                self._replace(place)

    def __repr__(self) -> str:
        return f"<ProcessEngine of {self._count} workers>"


def _environment() -> dict[str, str]:
    """One thread each, and this very package, however this process found it."""
    paths = (str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", ""))
    found = os.pathsep.join(path for path in paths if path)
    return {**os.environ, **dict.fromkeys(_ONE_THREAD, "1"), "PYTHONPATH": found}


def _forget(dropped: deque[int], number: int, file: SharedFile) -> None:
    dropped.append(number)
    file.close()
