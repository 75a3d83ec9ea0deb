"""Room for rows larger than memory: mapped files in a party's own folder.

It owns those files. They lose their name as soon as they are mapped, so nobody can open them by it,
two processes never share one, and the system takes the space back when the process ends.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import numpy as np

from hdpvfl_mq.data.preprocess import PreparedData, prepare_to_disk
from hdpvfl_mq.data.readers import TableFile
from hdpvfl_mq.glm.block import Matrix
from schemas.config import PartySettings


class DiskRoom:
    """Makes float32 arrays whose numbers live in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def prepared(self, source: TableFile, settings: PartySettings) -> PreparedData:
        """A party's rows, checked and numeric."""
        path = self._new_file()
        try:
            return prepare_to_disk(source, settings.data, path, role=settings.role)
        finally:
            path.unlink()

    def __call__(self, shape: tuple[int, int]) -> Matrix:
        """An array to be filled."""
        path = self._new_file()
        try:
            return np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=shape)
        finally:
            path.unlink()

    def _new_file(self) -> Path:
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle, name = tempfile.mkstemp(suffix=".npy", dir=self._folder)  # readable by the owner
        os.close(handle)
        return Path(name)
