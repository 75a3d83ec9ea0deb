"""Scores of a session on the active party's disk, by the rows of its file, as they arrive.

It owns two arrays and the partners' reasons in the run's folder, and the file made from them at the
end, CSV or Parquet; it knows no message. Arrays are mapped and the input is read in chunks, so
memory does not grow with the number of people. After a crash the same numbers are written again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
from numpy.typing import NDArray

from hdpvfl_mq.data.readers import TableFile
from hdpvfl_mq.glm.families import family
from hdpvfl_mq.runtime.files import write_private, writing_private
from parties.assets import Assets
from parties.common_rows import rows_of
from parties.phases import Setup
from parties.rounds.score_sums import Answer, unpacked

ABSENT = 0  # no common person in this row
REASONS = "scores.reasons"
_LABELS_MAX = 2**16 - 1


class ScoreResults:
    """Theta and label of every row of the file; a label says which partners are missing."""

    def __init__(self, folder: Path, own: Assets) -> None:
        self._own, self._names = own, folder / "scores.labels"
        self._reasons_file, self._reasons = folder / REASONS, reasons_in(folder)
        rows = own.data.rows
        self._theta = _mapped(folder / "scores.theta", rows, "<f8")
        self._label = _mapped(folder / "scores.label", rows, "<u2")
        stored = json.loads(self._names.read_text()) if self._names.exists() else ["absent", ""]
        self._labels: list[str] = stored

    def take(self, setup: Setup, answer: Answer) -> None:
        """Write one query's scores to their rows; they are on disk when this returns."""
        rows = rows_of(self._own, setup).order[answer.places]
        refused = unpacked(answer.refused, len(rows))
        self._theta[rows] = np.where(refused, np.nan, answer.theta)
        self._label[rows] = self._labels_of(answer)
        self._theta.flush()
        self._label.flush()
        if (reasons := self._reasons | dict(answer.reasons)) != self._reasons:
            self._reasons = reasons
            write_private(self._reasons_file, json.dumps(reasons), durable=True)

    def _labels_of(self, answer: Answer) -> NDArray[np.uint16]:
        """A number for each combination of missing partners."""
        names = sorted(answer.without)
        count = len(answer.places)
        missing = np.array([unpacked(answer.without[name], count) for name in names])
        if not names:
            return np.ones(count, dtype=np.uint16)
        kinds, places = np.unique(missing, axis=1, return_inverse=True)
        texts = ["+".join(n for n, is_missing in zip(names, kind, strict=True) if is_missing)
                 for kind in kinds.T]  # fmt: skip
        fresh = [text for text in texts if text not in self._labels]
        if fresh and len(self._labels) + len(fresh) <= _LABELS_MAX:
            self._labels += fresh
            write_private(self._names, json.dumps(self._labels), durable=True)
        numbers = np.array([self._labels.index(text) for text in texts], dtype=np.uint16)
        found: NDArray[np.uint16] = numbers[places.reshape(-1)]
        return found

    def write(self, path: Path) -> int:
        """Write one line for every common row, in the order of the file; returns how many.

        Columns: ids, `theta`, `prediction` (the expected label in its own units, or the probability
        of the upper class) and `without`, the partners that are missing in this score.
        """
        with writing_private(path) as file:
            return self._parquet(file) if path.suffix == ".parquet" else self._csv(file)

    def _csv(self, file: Any) -> int:
        lines = 0
        for table in self._tables():
            text = pa.BufferOutputStream()
            pa.csv.write_csv(table, text, pa.csv.WriteOptions(include_header=lines == 0))
            file.write(text.getvalue())
            lines += table.num_rows
        return lines

    def _parquet(self, file: Any) -> int:
        from pyarrow import parquet  # noqa: PLC0415 - 10 MB that few runs need

        lines, writer = 0, None
        for table in self._tables():
            writer = writer or parquet.ParquetWriter(file, table.schema)
            writer.write_table(table)
            lines += table.num_rows
        if writer is not None:
            writer.close()
        return lines

    def _tables(self) -> Iterator[pa.Table]:
        """The scored rows, one chunk of the file at a time."""
        settings, first = self._own.data.settings, 0
        for chunk in TableFile.of(settings).chunks(settings.id_columns):
            ids = [np.asarray(chunk[name]) for name in settings.id_columns]
            part = slice(first, first + len(ids[0]))
            first = part.stop
            label = np.asarray(self._label[part])
            here = label != ABSENT
            theta = np.asarray(self._theta[part])[here]
            columns = {
                **{
                    name: pa.array([str(each) for each in values[here].tolist()])
                    for name, values in zip(settings.id_columns, ids, strict=True)
                },
                "theta": pa.array(theta, from_pandas=True),
                "prediction": pa.array(self.predicted(theta), from_pandas=True),
                "without": pa.array(np.array(self._labels, dtype=object)[label[here]]),
            }
            yield pa.table(columns)

    def predicted(self, theta: NDArray[np.float64]) -> NDArray[np.float64]:
        """The model's prediction for these values of theta."""
        return predicted(self._own, theta)


def reasons_in(folder: Path) -> dict[str, str]:
    """Why partners are missing in scores, by partner: the last reason that each has given."""
    path = folder / REASONS
    found: dict[str, str] = json.loads(path.read_text()) if path.exists() else {}
    return found


def predicted(own: Assets, theta: NDArray[np.float64]) -> NDArray[np.float64]:
    """The expected label in its own units, or the probability of the upper class.

    NaN where theta is NaN: a loss clamps theta, so a refused score would have a prediction.
    """
    model = own.trained
    mean = family(model.manifest.loss).mean(theta)
    found = mean * float(model.data.label_scale) + float(model.data.label_centre)
    return np.where(np.isnan(theta), np.nan, found)


def _mapped(path: Path, rows: int, dtype: str) -> Any:
    size = np.dtype(dtype).itemsize * rows
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    if not path.exists() or path.stat().st_size != size:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.ftruncate(descriptor, size)
        os.close(descriptor)
    return np.memmap(path, dtype=dtype, mode="r+", shape=(rows,))
