"""Arrays larger than memory: mapped files in a party's own folder.

It owns those files. They have no name, so nobody can open them, two processes never share one, and
the system frees the space when the array is deleted or the process ends.
"""

from __future__ import annotations

import math
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hdpvfl_mq.errors import OperatorError


class MappedArrays:
    """Makes arrays whose numbers are stored in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __call__(self, shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
        """A new array, not yet filled."""
        size = math.prod(shape) * np.dtype(dtype).itemsize
        if size == 0:  # an empty file cannot be mapped
            return np.empty(shape, dtype)
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.TemporaryFile(dir=self._folder) as file:
            try:
                os.posix_fallocate(file.fileno(), 0, size)  # fail now on a full disk, not later
            except OSError as full:
                raise OperatorError(
                    f"{self._folder} has no room for {size / 1e9:.1f} GB of rows: {full.strerror}"
                ) from None
            return np.memmap(file, dtype=dtype, mode="r+", shape=shape)
