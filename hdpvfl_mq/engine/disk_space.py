"""Space on disk for arrays: files without a name in one folder.

It owns the files and knows which stretches of them are free. Nobody can open these files, two
processes never share one, and the system frees them when the process ends. Inside a pure step no
file is made: a step that needs more space than there is gives up, and is made again after `grow`.
"""

from __future__ import annotations

import mmap
import os
import tempfile
import threading
import weakref
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from hdpvfl_mq.errors import OperatorError

_GRAIN = mmap.ALLOCATIONGRANULARITY  # a mapping starts at a multiple of it


class SpaceNeededError(Exception):
    """A step needs more space than there is; the shell makes it and repeats the step."""

    def __init__(self, size: int) -> None:
        super().__init__(f"{size} bytes")
        self.size = size


@dataclass(frozen=True, slots=True, eq=False)
class Extent:
    """A stretch of an open file."""

    file: IO[bytes]
    start: int
    size: int


class DiskSpace:
    """The files of one folder. Threads may share it; `fixed` counts for the calling thread."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._free: list[Extent] = []
        # Finalizers append here. They may run at any moment, so they must not wait for the lock.
        self._returned: deque[Extent] = deque()
        self._total = 0
        self._lock = threading.Lock()
        self._thread = threading.local()

    def take(self, size: int) -> Extent:
        """The smallest free stretch of at least this many bytes, cut to size."""
        size = -(-size // _GRAIN) * _GRAIN
        with self._lock:
            self._collect()
            fitting = [each for each in self._free if each.size >= size]
            if not fitting:
                if getattr(self._thread, "is_fixed", False):
                    raise SpaceNeededError(size)
                fitting = [self._make(size)]
            found = min(fitting, key=lambda each: each.size)
            self._free.remove(found)
            if found.size > size:
                rest = Extent(found.file, found.start + size, found.size - size)
                self._free.append(rest)
            return Extent(found.file, found.start, size)

    def give_back_with(self, mapping: mmap.mmap, extent: Extent) -> None:
        """Free a stretch when its mapping, and so every array in it, is gone."""
        weakref.finalize(mapping, self._returned.append, extent).atexit = False

    @contextmanager
    def fixed(self) -> Iterator[None]:
        """Make no file meanwhile: `take` raises SpaceNeededError instead."""
        self._thread.is_fixed = True
        try:
            yield
        finally:
            self._thread.is_fixed = False

    def grow(self, size: int) -> None:
        """Make room for this many bytes, and if the disk allows, double the space.

        A step repeats its work for each call, so there must be few.
        """
        with self._lock:
            try:
                self._make(max(size, self._total))
            except OperatorError:
                self._make(size)

    def trim(self) -> None:
        """Close the files in which nothing is used."""
        with self._lock:
            self._collect()
            for each in [each for each in self._free if _is_whole(each)]:
                self._free.remove(each)
                self._total -= each.size
                each.file.close()

    def _make(self, size: int) -> Extent:
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        file = tempfile.TemporaryFile(  # noqa: SIM115 - open as long as it is used
            dir=self._folder, buffering=0
        )
        try:
            os.posix_fallocate(file.fileno(), 0, size)  # fail now on a full disk, not later
        except OSError as full:
            file.close()
            raise OperatorError(
                f"{self._folder} has no room for {size / 1e9:.1f} GB of rows: {full.strerror}"
            ) from None
        made = Extent(file, 0, size)
        self._free.append(made)
        self._total += size
        return made

    def _collect(self) -> None:
        """Take in what was returned, and join neighbours."""
        if not self._returned:
            return
        while self._returned:
            self._free.append(self._returned.popleft())
        joined: list[Extent] = []
        for each in sorted(self._free, key=lambda each: (each.file.fileno(), each.start)):
            last = joined[-1] if joined else None
            if last and last.file is each.file and last.start + last.size == each.start:
                joined[-1] = Extent(last.file, last.start, last.size + each.size)
            else:
                joined.append(each)
        self._free = joined


def _is_whole(extent: Extent) -> bool:
    return extent.start == 0 and extent.size == os.fstat(extent.file.fileno()).st_size
