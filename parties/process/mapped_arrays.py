"""Arrays larger than memory: mapped stretches of files in a party's own folder.

It owns how an array lies in the space on disk, and when a stretch is free again.
"""

from __future__ import annotations

import math
import mmap
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hdpvfl_mq.engine.disk_space import DiskSpace


class MappedArrays:
    """Makes arrays whose numbers are stored on disk."""

    def __init__(self, space: DiskSpace) -> None:
        self.space = space

    def __call__(self, shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
        """A new array, not yet filled."""
        size = math.prod(shape) * np.dtype(dtype).itemsize
        if size == 0:  # nothing cannot be mapped
            return np.empty(shape, dtype)
        extent = self.space.take(size)
        array: NDArray[Any] = np.memmap(
            extent.file, dtype=dtype, mode="r+", offset=extent.start, shape=shape
        )
        assert isinstance(array.base, mmap.mmap)  # every view of the array keeps it
        self.space.give_back_with(array.base, extent)
        return array
