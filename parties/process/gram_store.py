"""A data set's noised X'X on disk: paid for once, free in later runs.

It owns the folder `state/<party>/statistics`; the roles know what X'X is for. A file is named by
the data set's name and the names of its columns. A run must see at every restart what it saw at its
first start, because its journal is replayed against that.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from hdpvfl_mq.errors import IntegrityError, OperatorError
from hdpvfl_mq.privacy.mechanism import stored_release
from hdpvfl_mq.runtime.files import write_private
from schemas.ids import RunId
from schemas.privacy import Release


class GramStore:
    """The statistics of one data set and its columns, for one run."""

    def __init__(self, folder: Path, run: RunId, dataset: str, columns: tuple[str, ...]) -> None:
        self._folder, self._run = folder, run
        named = "\x00".join((dataset, *columns)).encode()
        self._name = hashlib.sha256(named).hexdigest()[:32]
        self._is_kept = False

    def usable(self) -> Release | None:
        """The X'X with the least noise among those on disk at this run's first start."""
        seen = self._folder / f"{self._run}.seen"
        if not seen.exists():
            found = [self._read(path) for path in self._folder.glob(f"{self._name}-*.gram")]
            best = min(found, key=lambda each: (each.noise_std, each.release_id), default=None)
            self._write(seen, b"" if best is None else self._file(best).name.encode())
        name = seen.read_text()
        return self._read(self._folder / name) if name else None

    def keep(self, release: Release | None) -> None:
        """Write this run's own X'X to disk; an existing file is not changed."""
        if release is None or self._is_kept:
            return
        path = self._file(release)
        if not path.exists():
            self._write(path, release.model_dump_json().encode())
        self._is_kept = True

    def _file(self, release: Release) -> Path:
        run = hashlib.sha256(release.release_id.encode()).hexdigest()[:16]
        return self._folder / f"{self._name}-{run}.gram"

    def _read(self, path: Path) -> Release:
        try:
            kept: Release | None = stored_release(path.read_bytes())
        except OSError as missing:
            raise OperatorError(
                f"cannot read {path}: {missing.strerror}; put the file back, this run relies on it"
            ) from None
        except ValueError:
            kept = None
        if kept is None or self._file(kept) != path:
            raise IntegrityError(f"{path} is damaged: put a good copy back, or delete it")
        return kept

    @staticmethod
    def _write(path: Path, content: bytes) -> None:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_private(path, content, durable=True)
