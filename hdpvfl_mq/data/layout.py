"""Which columns of one file are wanted, by the names of the source.

It owns the blanks around names and the columns that folders named key=value add; it reads nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa


@dataclass(frozen=True)
class Layout:
    """The wanted columns of one file."""

    wanted: tuple[str, ...]
    written: Mapping[str, str]  # every name in the file as it is written there
    folders: Mapping[str, str | None]  # the columns that its folders add, and their only value

    def missing(self) -> str | None:
        """The first wanted column that is not there."""
        known = {*self.written, *self.folders}
        return next((name for name in self.wanted if name not in known), None)

    def inside(self, names: Collection[str]) -> list[str]:
        """Those of these columns that are in the file, as they are written there."""
        return [self.written[name] for name in names if name in self.written]

    def table(self, batch: Any) -> Any:
        """All wanted columns of some rows of the file."""
        columns = [
            batch.column(self.written[name])
            if name in self.written
            else pa.repeat(pa.scalar(self.folders[name], pa.large_string()), batch.num_rows)
            for name in self.wanted
        ]
        return pa.table(columns, names=list(self.wanted))
