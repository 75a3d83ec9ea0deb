"""Matrices in a folder that the workers of a cluster see under the same path.

It owns the files. A file is locked as long as the process that made it lives and is deleted with
its matrix; files that a killed process left are deleted when the next one starts.
"""

from __future__ import annotations

import fcntl
import math
import os
import tempfile
import weakref
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from hdpvfl_mq.engine.port import Matrix
from hdpvfl_mq.errors import OperatorError

_PREFIX = "hdpvfl-rows-"


class RowsFolder:
    """Makes matrices in files that only this user can read."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder.absolute()
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._made: list[weakref.finalize[..., Matrix]] = []
        for left in self._folder.glob(f"{_PREFIX}*"):
            _delete_unlocked(left)

    def allocate_rows(self, shape: tuple[int, int], dtype: Any) -> tuple[Matrix, str]:
        """A new matrix, not yet filled, and the path of its file."""
        size = max(1, math.prod(shape) * np.dtype(dtype).itemsize)
        descriptor, path = tempfile.mkstemp(prefix=_PREFIX, dir=self._folder)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        try:
            os.posix_fallocate(descriptor, 0, size)
        except OSError as full:
            _remove(path, descriptor)
            raise OperatorError(
                f"{self._folder} has no room for {size / 1e9:.1f} GB of rows: {full.strerror}"
            ) from None
        X: Matrix = np.memmap(path, dtype=dtype, mode="r+", shape=shape)
        self._made.append(weakref.finalize(X, _remove, path, descriptor))
        return X, path

    def clear(self) -> None:
        """Delete all files now; matrices stay mapped until nobody uses them."""
        for remove in self._made:
            remove()
        self._made = []


def _delete_unlocked(path: Path) -> None:
    with suppress(OSError), path.open("rb") as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.unlink()


def _remove(path: str, descriptor: int) -> None:
    with suppress(OSError):
        Path(path).unlink()
    os.close(descriptor)
