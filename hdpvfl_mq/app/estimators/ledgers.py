"""Ledgers that outlive an estimator: every fit is charged to them.

It owns their paths and caps; hdpvfl_mq/privacy has the rules of a ledger.
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class LedgerFolder:
    """A folder with one ledger for each party, and the lifetime cap of their data set.

    A fit that would exceed the cap raises `RefusedError` before anything is released. A grid search
    of ten candidates in five folds is fifty fits, and each is charged.
    """

    path: str | Path
    dataset: str
    epsilon: float
    delta: float
    pure_slots: tuple[float, ...] = ()  # parts of epsilon reserved for fits with bounded noise

    def file(self, party: str) -> Path:
        """The file of a party's ledger."""
        return Path(self.path) / party / "ledger.db"

    @contextmanager
    def held(self) -> Iterator[None]:
        """Let one fit at a time use the ledgers: fits of `n_jobs=2` wait for each other."""
        folder = Path(self.path)
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        with (folder / "fit.lock").open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield
