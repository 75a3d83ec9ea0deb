"""One worker of the engine `processes`, as the party's process sees it.

It owns the process, the connection to it and which jobs it has been given; worker.py is the other
end.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections import deque
from contextlib import closing, suppress
from multiprocessing.connection import Connection
from multiprocessing.reduction import send_handle
from pathlib import Path

from hdpvfl_mq.engine.channel import send
from hdpvfl_mq.engine.shared_rows import SharedFile
from hdpvfl_mq.engine.worker import Asked, Drop, Take

_PROGRAM = "from hdpvfl_mq.engine.worker import main; main()"
_ONE_THREAD = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


class WorkerProcess:
    """A process that answers jobs one after the other, in the order it was given them."""

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
        self.jobs: deque[int] = deque()  # the numbers of the jobs that it has not answered

    def take(self, number: int, file: SharedFile) -> bool:
        """Hand over a matrix, once; False if the process has died."""
        if number in self.held:
            return True
        try:
            send(self.connection, Take(number, file.shape, file.dtype.str, file.start))
            send_handle(self.connection, file.descriptor, self.process.pid)
        except OSError:
            return False
        self.held.add(number)
        return True

    def drop(self, number: int) -> None:
        """Tell it that a matrix is needed no more."""
        self.held.discard(number)
        with suppress(OSError):  # it has died, and its mapping with it
            send(self.connection, Drop(number))

    def ask(self, job: int, asked: Asked) -> bool:
        """Hand over a job; False if the process has died."""
        try:
            send(self.connection, asked)
        except OSError:
            return False
        self.jobs.append(job)
        return True

    def end(self) -> None:
        """Close the connection, which ends the process."""
        self.connection.close()
        self.process.wait()


def _environment() -> dict[str, str]:
    """One thread each, and this very package, however this process found it."""
    paths = (str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", ""))
    found = os.pathsep.join(path for path in paths if path)
    return {**os.environ, **dict.fromkeys(_ONE_THREAD, "1"), "PYTHONPATH": found}
