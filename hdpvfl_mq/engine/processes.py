"""The engine `processes`: all cores of one host compute blocks of one party's rows.

It owns the workers and hands out blocks. Rows are in mapped memory or files that workers map too,
so no row is ever copied to them; only vectors and results are. A worker that dies is replaced, and
the blocks it had are computed again.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, count, islice, starmap
from multiprocessing.connection import Connection, wait
from typing import Any

from hdpvfl_mq.engine.channel import receive
from hdpvfl_mq.engine.disk_space import DiskSpace
from hdpvfl_mq.engine.port import Job, Piece, R, Result, Unseen, WorkersRows
from hdpvfl_mq.engine.shared_rows import SharedFile
from hdpvfl_mq.engine.worker import Asked, Call, Compute, Failure
from hdpvfl_mq.engine.worker_process import WorkerProcess
from hdpvfl_mq.errors import OperatorError

# A worker gets its share of a job in this many runs of blocks, so that a slow one holds up little.
_RUNS_A_WORKER = 6
_DEATHS_MAX = 3  # of workers on one run of blocks, until the operator must look
_JOBS_AHEAD = 2  # that a worker has been given: it begins the next without waiting to be asked


class _Turn:
    """One call of an engine: jobs not yet handed out, handed out, and answered."""

    def __init__(self, jobs: Iterator[Asked]) -> None:
        self._jobs, self._next = jobs, 0
        self._again: list[int] = []  # of workers that died
        self.out: dict[int, Asked] = {}
        self.done: dict[int, list[Result]] = {}
        self.deaths: dict[int, int] = {}

    def take(self, before: int) -> int | None:
        """The first job to hand out that has a number below this; None if there is none."""
        if self._again:
            return self._again.pop(0)
        if self._next >= before or (asked := next(self._jobs, None)) is None:
            return None
        number, self._next = self._next, self._next + 1
        self.out[number] = asked
        return number

    def answered(self, number: int, results: list[Result]) -> None:
        """Keep the results of a job until it is their turn."""
        del self.out[number]
        self.done[number] = results

    def lost(self, numbers: Iterable[int]) -> None:
        """Jobs of a worker that died, the one it was computing first, are handed out again."""
        first, *others = numbers
        self._again = sorted([*self._again, first, *others])
        self.deaths[first] = self.deaths.get(first, 0) + 1
        if self.deaths[first] >= _DEATHS_MAX:
            raise OperatorError(
                f"a worker died {_DEATHS_MAX} times while computing {self.out[first].name}: "
                'is there enough memory? set fewer engine.workers, or engine.kind = "local"'
            ) from None


class SharedRows(WorkersRows):
    """A matrix that all workers map."""

    def __init__(self, engine: ProcessEngine, number: int, file: SharedFile) -> None:
        super().__init__(file.mapped())
        self._engine, self.number, self.file = engine, number, file

    def _results(self, job: Job) -> Iterator[Result]:
        return self._engine.results(job, self)


class ProcessEngine:
    """Workers of this host, started with the first job and used for all that follow."""

    def __init__(self, workers: int | None = None, space: DiskSpace | None = None) -> None:
        """`space` is where matrices are stored; None stores them in memory."""
        self._count = workers or len(os.sched_getaffinity(0))
        self._space = space
        self._workers: list[WorkerProcess] = []
        self._numbers = count()
        self._dropped: deque[int] = deque()
        self._lock = threading.Lock()

    @property
    def pids(self) -> tuple[int, ...]:
        """The processes that compute."""
        return tuple(worker.process.pid for worker in self._workers)

    def allocate_rows(self, shape: tuple[int, int], dtype: Any) -> SharedRows:
        """A matrix that workers can map."""
        number, file = next(self._numbers), SharedFile(shape, dtype, self._space)
        rows = SharedRows(self, number, file)
        weakref.finalize(rows, _forget, self._dropped, number, file)
        return rows

    def each(self, kernel: Callable[..., R], pieces: Iterable[Piece]) -> Iterator[R]:
        """Compute pieces on all workers; a single piece is computed here."""
        coming = iter(pieces)
        first = list(islice(coming, 2))
        if len(first) < 2:
            return starmap(kernel, first)
        jobs = (Call(kernel, each) for each in chain(first, coming))
        return self._results(jobs, None)

    def read(self, kernel: Callable[..., R], pieces: Iterable[Piece]) -> Iterator[R | Unseen]:
        """Workers of this host read what this process can read."""
        return self.each(kernel, pieces)

    sees_ids = True

    def results(self, job: Job, rows: SharedRows) -> Iterator[Result]:
        """The results of a job's blocks, in order."""
        runs = job.runs(self._count, each=_RUNS_A_WORKER)
        return self._results((Compute(rows.number, each) for each in runs), rows)

    def _results(self, jobs: Iterator[Asked], rows: SharedRows | None) -> Iterator[Result]:
        """Answers in the order of the jobs; one call at a time."""
        with self._lock:
            self._start()
            turn = _Turn(jobs)
            try:
                for number in count():
                    while number not in turn.done:
                        self._hand_out(turn, rows, number)
                        if number not in turn.out:
                            return
                        self._collect(turn)
                    self._hand_out(turn, rows, number + 1)
                    yield from turn.done.pop(number)
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
            self._workers.append(WorkerProcess())
        while self._dropped:
            number = self._dropped.popleft()
            for worker in self._workers:
                worker.drop(number)

    def _hand_out(self, turn: _Turn, rows: SharedRows | None, wanted: int) -> None:
        """Give workers jobs that are not too far ahead of the one that is wanted next."""
        for depth in range(_JOBS_AHEAD):
            for place in range(self._count):
                if len(self._workers[place].jobs) > depth:
                    continue
                number = turn.take(wanted + (_JOBS_AHEAD + 1) * self._count)
                if number is None:
                    return
                self._ask(place, number, turn, rows)

    def _ask(self, place: int, number: int, turn: _Turn, rows: SharedRows | None) -> None:
        """Hand a job to a worker; one that has died is replaced at once.

        If all had died, nobody's answer could be waited for.
        """
        for _ in range(2):
            worker = self._workers[place]
            has_rows = rows is None or worker.take(rows.number, rows.file)
            if has_rows and worker.ask(number, turn.out[number]):
                return
            if worker.jobs:  # it died while computing another one
                turn.lost([*worker.jobs, number])
                self._replace(place)
                return
            self._replace(place)
        raise OperatorError(
            "a worker ends as soon as it is started: is there enough memory? set fewer "
            'engine.workers, or engine.kind = "local"'
        )

    def _collect(self, turn: _Turn) -> None:
        """Wait for at least one worker: take its results, or replace it if it died."""
        busy = {
            worker.connection: place for place, worker in enumerate(self._workers) if worker.jobs
        }
        for ready in wait(list(busy)):
            assert isinstance(ready, Connection)
            worker = self._workers[busy[ready]]
            try:
                found = receive(ready)
            except (EOFError, OSError):
                self._replace(busy[ready])
                turn.lost(worker.jobs)
                continue
            except BaseException:
                ready.close()  # the rest of the answer is in it; `_settle` replaces the worker
                raise
            number = worker.jobs.popleft()
            if isinstance(found, Failure):
                name = turn.out[number].name
                raise OperatorError(f"a worker could not compute {name}: {found.kind}")
            turn.answered(number, found)

    def _replace(self, place: int) -> None:
        self._workers[place].end()
        self._workers[place] = WorkerProcess()

    def _settle(self) -> None:
        """Discard answers that nobody waits for any more."""
        for place, worker in enumerate(self._workers):
            try:
                while worker.jobs:
                    receive(worker.connection)
                    worker.jobs.popleft()
            except (EOFError, OSError, MemoryError):
                self._replace(place)

    def __repr__(self) -> str:
        return f"<ProcessEngine of {self._count} workers>"


def _forget(dropped: deque[int], number: int, file: SharedFile) -> None:
    dropped.append(number)
    file.close()
