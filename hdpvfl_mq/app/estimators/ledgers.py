"""Ledgers that outlive an estimator: every fit is charged to them.

It owns where they are and what they allow; the rules of a ledger are in hdpvfl_mq/privacy.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class LedgerFolder:
    """One ledger for each party in a folder, and the lifetime cap of the data set they count.

    A fit that would exceed the cap raises `RefusedError` before anything is released. A grid search
    of ten candidates in five folds is fifty fits, and each is charged.
    """

    path: str | Path
    dataset: str
    epsilon: float
    delta: float

    def file(self, party: str) -> Path:
        """A party's ledger."""
        return Path(self.path) / party / "ledger.db"
