"""The order of attempts: workers read, workers are sent texts, this process reads."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice, starmap
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hdpvfl_mq.data.decoding import parsed_chunks
from hdpvfl_mq.data.parsed import reading
from hdpvfl_mq.data.readers import TableFile
from hdpvfl_mq.engine.port import Unseen
from schemas.data import DataSettings

ROWS = 20


class Asked:
    """An engine that does one thing at a time, and whose workers answer so many pieces."""

    def __init__(self, *, reads: int, sees_ids: bool = True) -> None:
        self.reads, self.sees_ids = reads, sees_ids
        self.is_busy, self.found = False, list[str]()

    def read(self, kernel: Any, pieces: Any) -> Iterator[Any]:
        coming = iter(pieces)
        yield from self._one("read", starmap(kernel, islice(coming, self.reads)))
        if next(coming, None) is not None:
            yield from self._one("unseen", iter([Unseen()]))

    def each(self, kernel: Any, pieces: Any) -> Iterator[Any]:
        return self._one("sent", starmap(kernel, pieces))

    def _one(self, name: str, results: Iterator[Any]) -> Iterator[Any]:
        assert not self.is_busy
        self.is_busy = True
        try:
            for result in results:
                self.found.append(name)
                yield result
        finally:
            self.is_busy = False


@pytest.fixture
def source(tmp_path: Path) -> TableFile:
    lines = ["id,a", *(f"k{n},{n}.5" for n in range(ROWS))]
    (tmp_path / "x.csv").write_text("\n".join(lines))
    return TableFile(tmp_path / "x.csv", chunk_cells=8)  # five chunks


def rows(source: TableFile, engine: Any) -> list[tuple[str, float]]:
    how = reading(source, DataSettings(), "passive")
    parsed = list(parsed_chunks(how, source, engine))
    return [
        (name, number)
        for chunk in parsed
        for name, number in zip(chunk.ids[0].tolist(), chunk.numbers[0].tolist(), strict=True)
    ]


@pytest.mark.parametrize("sees_ids", [True, False])
@pytest.mark.parametrize(
    ("reads", "found"),
    [(99, ["read"] * 5), (2, ["read"] * 2 + ["unseen"]), (0, ["unseen"] + ["sent"] * 5)],
)
def test_rows_are_the_same_whoever_decodes_them(
    source: TableFile, *, reads: int, found: list[str], sees_ids: bool
) -> None:
    engine = Asked(reads=reads, sees_ids=sees_ids)
    assert rows(source, engine) == [(f"k{n}", n + 0.5) for n in range(ROWS)]
    assert engine.found == found


def test_workers_that_may_not_see_ids_are_not_asked_for_them(source: TableFile) -> None:
    asked = list[Any]()

    class Noted(Asked):
        def read(self, kernel: Any, pieces: Any) -> Iterator[Any]:
            for piece in pieces:
                asked.append(piece)
                yield kernel(*piece)

    rows(source, Noted(reads=9, sees_ids=False))
    assert {how.id_columns for how, _ in asked} == {()}
    found = [table for _, piece in asked for table in piece.tables(())]
    assert {table.names for table in found} == {("a",)}
    assert np.concatenate([table["a"] for table in found]).tolist()[:2] == [0.5, 1.5]
