"""Matrices that the processes of one host share: mapped memory or mapped files without a name.

It owns the open file behind a matrix. Nobody else can open it: workers are handed its descriptor.
The system frees memory when the last process lets go of it; space on disk is used again.
"""

from __future__ import annotations

import math
import mmap
import os
from typing import Any

import numpy as np

from hdpvfl_mq.engine.disk_space import DiskSpace
from hdpvfl_mq.engine.port import Matrix
from hdpvfl_mq.errors import OperatorError


class SharedFile:
    """A stretch of an open file for one matrix; in memory unless there is space on disk."""

    def __init__(self, shape: tuple[int, int], dtype: Any, space: DiskSpace | None) -> None:
        self.shape, self.dtype = shape, np.dtype(dtype)
        self._space, self._extent = space, None
        size = _mapped_bytes(shape, self.dtype)
        if space is None:
            self.descriptor, self.start = _memory(size), 0
        else:
            self._extent = space.take(size)
            self.descriptor, self.start = os.dup(self._extent.file.fileno()), self._extent.start

    def mapped(self) -> Matrix:
        """The matrix, for this process to fill and read; call it once."""
        X = matrix_of(self.descriptor, self.shape, self.dtype, mmap.ACCESS_WRITE, self.start)
        if self._space is not None and self._extent is not None:
            assert isinstance(X.base, mmap.mmap)  # every view of the matrix keeps it
            self._space.give_back_with(X.base, self._extent)
        return X

    def close(self) -> None:
        """Let go of the file; mappings of it stay."""
        os.close(self.descriptor)


def matrix_of(
    descriptor: int, shape: tuple[int, int], dtype: Any, access: int, start: int
) -> Matrix:
    """Map a stretch of an open file as a matrix."""
    held = mmap.mmap(descriptor, _mapped_bytes(shape, dtype), access=access, offset=start)
    return np.ndarray(shape, dtype, buffer=held)


def _mapped_bytes(shape: tuple[int, int], dtype: Any) -> int:
    size: int = math.prod(shape) * np.dtype(dtype).itemsize
    return max(1, size)  # nothing cannot be mapped


def _memory(size: int) -> int:
    descriptor = os.memfd_create("hdpvfl rows", os.MFD_CLOEXEC)
    try:
        os.posix_fallocate(descriptor, 0, size)  # fail now, not later
    except OSError as full:
        os.close(descriptor)
        raise OperatorError(
            f"memory has no room for {size / 1e9:.1f} GB of rows: {full.strerror}"
        ) from None
    return descriptor
