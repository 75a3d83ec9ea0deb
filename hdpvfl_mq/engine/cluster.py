"""The engine `dask`: an existing Dask cluster of the party computes blocks of its rows.

It owns the connection and hands out blocks. Workers read rows from a folder they share with the
party's process, or are sent stretches of rows once. The scheduler gives the blocks of a lost worker
to another one; stretches of rows lost with it are sent again. Whoever runs the cluster sees rows in
the clear: it is the party's own. No task raises, because Dask logs the arguments of one that does.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError
from concurrent.futures import TimeoutError as Late
from functools import partial
from itertools import chain, count, islice, repeat, starmap
from typing import Any

import dask
import numpy as np
from distributed import Client, KilledWorker, Security
from distributed.client import FutureCancelledError

from hdpvfl_mq.arrays.chunked import Allocate, chunks
from hdpvfl_mq.engine.cluster_tasks import Block, FilePlace, Problem, Read, Task, compute, read
from hdpvfl_mq.engine.port import (
    Job,
    Kernel,
    Matrix,
    Piece,
    R,
    Result,
    Unseen,
    WorkersRows,
    name_of,
)
from hdpvfl_mq.engine.rows_folder import RowsFolder
from hdpvfl_mq.errors import NetworkError, OperatorError, SettingsError

STRETCH_BYTES = 2**25  # rows are sent in stretches of this size
_RUNS_A_THREAD = 4
_PIECES_A_THREAD = 2  # handed out, so that a worker begins the next at once
_CONNECT_S = 30.0
_LOST_S = "5s"  # after which a worker that does not answer counts as lost
_TRIES = 5  # of one run of blocks, each after a worker was lost
_LOOK_S = 5.0  # how often a wait looks whether there is still a worker
_WORKERLESS_LOOKS = 12


class ClusterRows(WorkersRows):
    """A matrix that the workers of a cluster read from a folder or are sent."""

    def __init__(self, engine: ClusterEngine, X: Matrix, place: FilePlace | None) -> None:
        super().__init__(X)
        self._engine, self.place = engine, place
        size = max(1, STRETCH_BYTES // max(1, X.itemsize * X.shape[1]))
        self.stretches = list(chunks(len(X), size))
        self.sent: dict[int, Any] = {}

    def _results(self, job: Job) -> Iterator[Result]:
        return self._engine.results(job, self)

    def needed(self, job: Job) -> range:
        """The numbers of the stretches with the rows of a job."""
        size = self.stretches[0].stop
        return range(job.parts[0].start // size, (job.parts[-1].stop - 1) // size + 1)


class ClusterEngine:
    """A connection to a Dask scheduler, opened with the first job."""

    def __init__(
        self,
        address: str,
        *,
        profile: Callable[[], str],
        tls: tuple[str, str, str] | None = None,
        folder: RowsFolder | None = None,
        allocate: Allocate = np.empty,
        say: Callable[[str], None] = print,
    ) -> None:
        """`profile` names what bits depend on; `tls` is authority, certificate and key.

        `say` tells the operator something.
        """
        self._say = say
        self._address, self._tls, self._profile = address, tls, profile
        self._folder, self._allocate = folder, allocate
        self._client: Any = None  # Dask publishes few types
        self._numbers = count()
        self._lock = threading.Lock()

    def allocate_rows(self, shape: tuple[int, int], dtype: Any) -> ClusterRows:
        """A matrix in the shared folder, or in this process until workers need it."""
        if self._folder is None:
            return ClusterRows(self, self._allocate(shape, dtype), None)
        X, path = self._folder.allocate_rows(shape, dtype)
        return ClusterRows(self, X, FilePlace(path, shape, np.dtype(dtype).str))

    def each(self, kernel: Callable[..., R], pieces: Iterable[Piece]) -> Iterator[R]:
        """Compute here, because pieces hold ids, noise keys or other secrets.

        A cluster is handed rows, and nothing that outlives them.
        """
        return starmap(kernel, pieces)

    def read(self, kernel: Callable[..., R], pieces: Iterable[Piece]) -> Iterator[R | Unseen]:
        """Workers read the pieces, a few at a time; a single piece is read here."""
        coming = iter(pieces)
        first = list(islice(coming, 2))
        if len(first) < 2:
            yield from starmap(kernel, first)
            return
        with self._lock:
            for found in self._read(kernel, chain(first, coming)):
                if isinstance(found, Unseen):
                    self._say(
                        "the workers of the Dask cluster do not see this party's file, or see "
                        "another one under its path: it is prepared in this process. Mount its "
                        "folder there under the same path"
                    )
                yield found

    sees_ids = False  # ids never go to a cluster

    def _read(self, kernel: Kernel, pieces: Iterable[Piece]) -> Iterator[Any]:
        client, waiting = self._connected(), deque[tuple[Read, Any]]()
        ahead = _PIECES_A_THREAD * max(1, sum(client.nthreads().values()))
        for piece in chain(pieces, repeat(None)):
            if piece is not None:
                task = Read(kernel, piece, self._profile, self._profile())
                waiting.append((task, self._asked(client, task)))
            if not waiting:
                return
            if piece is None or len(waiting) > ahead:
                task, future = waiting.popleft()
                yield self._result(client, kernel, future, partial(self._asked, client, task))

    def _asked(self, client: Any, task: Read) -> Any:
        return client.submit(read, task, key=self._key(task.kernel), pure=False)

    def results(self, job: Job, rows: ClusterRows) -> Iterator[Result]:
        """The results of a job's blocks, in order."""
        with self._lock:
            client = self._connected()
            jobs = _runs(job, rows, max(1, sum(client.nthreads().values())))
            futures = [self._submitted(client, each, rows) for each in jobs]
            for place, each in enumerate(jobs):
                again = partial(self._sent_again, client, each, rows)
                yield from self._result(client, each.kernel, futures[place], again)
                futures[place].release()

    def wait_for_workers(self, wanted: int) -> None:
        """Wait until the cluster has this many workers."""
        self._connected().wait_for_workers(wanted, timeout=60)

    def close(self) -> None:
        """Close the connection; the cluster forgets what it was sent, the folder is emptied."""
        with self._lock:
            if self._folder is not None:
                self._folder.clear()
            if self._client is not None:
                self._client.close()
                self._client = None

    def _connected(self) -> Any:
        if self._client is not None:
            return self._client
        dask.config.set({"distributed.comm.timeouts.connect": _LOST_S})
        try:
            security = None
            if self._tls is not None:
                ca, certificate, key = self._tls
                security = Security(  # type: ignore[no-untyped-call]  # as Dask publishes it
                    tls_ca_file=ca,
                    tls_client_cert=certificate,
                    tls_client_key=key,
                    require_encryption=True,
                )
            self._client = Client(  # type: ignore[no-untyped-call]  # as Dask publishes it
                self._address,
                security=security,
                set_as_default=False,
                timeout=_CONNECT_S,
                direct_to_workers=True,  # results by way of the scheduler if that fails
            )
        except (OSError, ValueError) as failed:
            raise NetworkError(
                f"the Dask scheduler at {self._address} cannot be reached "
                f"({type(failed).__name__}): start it, or correct engine.address or "
                "its certificates"
            ) from None
        return self._client

    def _submitted(self, client: Any, job: Job, rows: ClusterRows) -> Any:
        task = Task(job, self._profile, self._profile())
        key = self._key(job.kernel)
        if rows.place is not None:
            return client.submit(compute, task, rows.place, key=key, pure=False)
        numbers = rows.needed(job)
        blocks = [self._sent(client, rows, number) for number in numbers]
        first = rows.stretches[numbers[0]].start
        return client.submit(compute, task, first, *blocks, key=key, pure=False)

    def _sent_again(self, client: Any, job: Job, rows: ClusterRows) -> Any:
        """Submit a job again with its rows, which a lost worker took with it."""
        for number in rows.needed(job):
            rows.sent.pop(number, None)
        return self._submitted(client, job, rows)

    def _key(self, kernel: Kernel) -> str:
        return f"hdpvfl-{name_of(kernel)}-{id(self)}-{next(self._numbers)}"

    def _sent(self, client: Any, rows: ClusterRows, number: int) -> Any:
        """The stretch of rows at a worker; neighbours go to the same worker."""
        if number not in rows.sent:
            workers = sorted(client.nthreads()) or [None]
            at = workers[number * len(workers) // len(rows.stretches)]
            block = Block(rows.X[rows.stretches[number]])
            rows.sent[number] = client.scatter(
                block, workers=None if at is None else [at], hash=False, direct=True
            )
        return rows.sent[number]

    def _result(self, client: Any, kernel: Kernel, future: Any, again: Callable[[], Any]) -> Result:
        for _ in range(_TRIES):
            try:
                found = self._waited(client, future)
            except (FutureCancelledError, CancelledError, KilledWorker):
                future = again()
                continue
            if isinstance(found, Problem):
                raise _told(found, kernel)
            return found
        raise OperatorError(
            f"{_TRIES} workers of the Dask cluster were lost while computing "
            f"{name_of(kernel)}: do they have enough memory?"
        )

    def _waited(self, client: Any, future: Any) -> Any:
        workerless = 0
        while True:
            try:
                return future.result(timeout=_LOOK_S)
            except Late:
                workerless = 0 if client.nthreads() else workerless + 1
                if client.status != "running" or workerless >= _WORKERLESS_LOOKS:
                    raise NetworkError(
                        f"the Dask cluster at {self._address} has no worker left, or its "
                        "scheduler is gone: start them again, then this party"
                    ) from None

    def __repr__(self) -> str:
        return f"<ClusterEngine at {self._address}>"


def _runs(job: Job, rows: ClusterRows, threads: int) -> list[Job]:
    """Runs of blocks: by stretch if rows are sent, else as many as keep every thread busy."""
    if rows.place is not None:
        return job.runs(threads, each=_RUNS_A_THREAD)
    by_stretch: dict[int, list[slice]] = {}
    for part in job.parts:
        by_stretch.setdefault(rows.needed(job.of([part]))[0], []).append(part)
    return [job.of(parts) for parts in by_stretch.values()]


def _told(problem: Problem, kernel: Kernel) -> OperatorError:
    if problem.profile:
        return SettingsError(
            "a Dask worker would compute bits that differ from this party's: it has "
            f"[{problem.profile}]; install the same versions there, and set OPENBLAS_CORETYPE "
            "on both sides if the processors differ"
        )
    return OperatorError(
        f"a Dask worker could not compute {name_of(kernel)}: {problem.kind}"
        " (rows in a folder must be readable there under the same path)"
    )
