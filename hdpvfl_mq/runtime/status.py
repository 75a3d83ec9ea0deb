"""status.json: the status of a process, written for its operator, never sent.

It owns the file and how often it is written; it knows no role. The file is replaced atomically, so
a reader never sees half of it.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any
from weakref import WeakSet

from hdpvfl_mq.runtime.files import write_private

EVERY_S = 0.2
# With hundreds of parties or a busy machine a status takes longer. All statuses of a process may
# use a fiftieth of its time, but one alone is never older than this.
SHARE, OLDEST_S = 50.0, 2.0
OLDER_S = 0.5  # for each further status of the process; else many would use all of its time
_all: WeakSet[Status] = WeakSet()


class Status:
    """One status file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._begun_at = self._due_at = 0.0
        _all.add(self)

    def due(self) -> bool:
        """Whether enough time has passed to collect the fields and write again."""
        self._begun_at = time.monotonic()
        return self._begun_at >= self._due_at

    def write(self, fields: dict[str, Any]) -> None:
        """Replace the file."""
        write_private(self._path, json.dumps(fields))
        now = time.monotonic()
        took_s = now - self._begun_at if self._begun_at else 0.0
        oldest_s = OLDEST_S + OLDER_S * (len(_all) - 1)
        self._due_at = now + min(oldest_s, max(EVERY_S, SHARE * took_s * len(_all)))


class Stopwatch:
    """Measures how long something has been running in this process, from one look per turn."""

    def __init__(self) -> None:
        self._seen_at = time.monotonic()
        self._ran = False
        self.elapsed_s = 0.0

    def see(self, *, running: bool) -> None:
        """Add the time since the last call if the thing ran then or runs now."""
        now = time.monotonic()
        if running or self._ran:
            self.elapsed_s += now - self._seen_at
        self._seen_at, self._ran = now, running


def read(path: Path) -> dict[str, Any]:
    """The content of a status file; empty if there is none yet."""
    try:
        fields: dict[str, Any] = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return fields
