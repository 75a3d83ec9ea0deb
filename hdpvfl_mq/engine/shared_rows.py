"""Matrices that the processes of one host share: mapped memory or mapped files without a name.

It owns the open file behind a matrix. Nobody else can open it: workers are handed its descriptor,
and the system frees the space when the last process lets go of it.
"""

from __future__ import annotations

import math
import mmap
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from hdpvfl_mq.engine.port import Matrix
from hdpvfl_mq.errors import OperatorError


class SharedFile:
    """An open file without a name, as large as one matrix; in memory unless a folder is given."""

    def __init__(self, shape: tuple[int, int], dtype: Any, folder: Path | None) -> None:
        self.shape, self.dtype = shape, np.dtype(dtype)
        size = max(1, math.prod(shape) * self.dtype.itemsize)  # an empty file cannot be mapped
        self.descriptor = _memory() if folder is None else _file(folder)
        try:
            os.posix_fallocate(self.descriptor, 0, size)  # fail now on a full disk, not later
        except OSError as full:
            os.close(self.descriptor)
            place = "memory" if folder is None else str(folder)
            raise OperatorError(
                f"{place} has no room for {size / 1e9:.1f} GB of rows: {full.strerror}"
            ) from None

    def mapped(self) -> Matrix:
        """The matrix, for this process to fill and read."""
        return matrix_of(self.descriptor, self.shape, self.dtype, mmap.ACCESS_WRITE)

    def close(self) -> None:
        """Let go of the file; mappings of it stay."""
        os.close(self.descriptor)


def matrix_of(descriptor: int, shape: tuple[int, int], dtype: Any, access: int) -> Matrix:
    """Map an open file as a matrix."""
    size = max(1, math.prod(shape) * np.dtype(dtype).itemsize)
    held = mmap.mmap(descriptor, size, access=access)
    return np.ndarray(shape, dtype, buffer=held)


def _memory() -> int:
    return os.memfd_create("hdpvfl rows", os.MFD_CLOEXEC)


def _file(folder: Path) -> int:
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with tempfile.TemporaryFile(dir=folder) as file:
        return os.dup(file.fileno())
