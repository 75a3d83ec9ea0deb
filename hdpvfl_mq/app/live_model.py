"""Predictions of a model that was trained on a live federation, from the active party's rows.

It owns the conversion between a caller's table and the files of a scoring run; the services score,
and each partner's policy decides. The partners' weights stay with the partners, so every call is a
run of its own.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
from numpy.typing import NDArray
from pyarrow import parquet

from hdpvfl_mq.app.scoring_manifest import ScoresWanted, scores_name
from hdpvfl_mq.data.readers import TableFile
from hdpvfl_mq.data.tables import Table
from hdpvfl_mq.errors import SettingsError
from hdpvfl_mq.glm.families import FAMILIES
from schemas.config import RunManifest
from schemas.data import DataSettings

if TYPE_CHECKING:
    from hdpvfl_mq.app.live import Federation

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class LiveModel:
    """A trained model whose weights are spread over the parties of a federation.

    Rows are the active party's: a file, or a table with its id columns and its own columns (pandas,
    polars, pyarrow, or a mapping from names to sequences). None scores everybody in the party's own
    file. Partners find their rows of the same people by entity resolution. A result has one entry
    for each row, in the order of the rows; people whom not all parties know, or whom a policy
    refuses, have nan (None in `predict` of a classifier).
    """

    federation: Federation
    manifest: RunManifest
    wanted: ScoresWanted

    def __repr__(self) -> str:
        manifest = self.manifest
        return f"LiveModel({manifest.run!r}, loss={manifest.loss.name!r})"

    @property
    def classes_(self) -> NDArray[Any]:
        """The two classes of the label: the second is the one that probabilities are of."""
        data = self._data
        if data.label_classes is None:
            return np.array([0, 1])
        if data.label_positive is None:
            return np.array(data.label_classes)
        others = [each for each in data.label_classes if each != data.label_positive]
        return np.array([others[0] if len(others) == 1 else "other", data.label_positive])

    def scores(self, rows: Any = None) -> Any:
        """A pyarrow table: ids, theta, prediction and, with sessions, partners that are missing.

        It has a line for every person that was scored.
        """
        with self._file(rows) as file:
            return self._scored(file)

    def decision_function(self, rows: Any = None) -> Vector:
        """The joint score of every row."""
        return self._column(rows, "theta")

    def predict_proba(self, rows: Any = None) -> Vector:
        """The probabilities of the two classes."""
        if not self._is_classifier:
            raise SettingsError(f"a model with loss {self.manifest.loss.name} has no probabilities")
        upper = self._column(rows, "prediction")
        return np.column_stack([1.0 - upper, upper])

    def predict(self, rows: Any = None) -> NDArray[Any]:
        """The class of every row, or its expected label."""
        if not self._is_classifier:
            return self._column(rows, "prediction")
        theta = self.decision_function(rows)
        found = self.classes_[(theta > 0.0).astype(np.int64)]
        if np.isnan(theta).any():
            found = found.astype(object)
            found[np.isnan(theta)] = None
        return found

    # -- a scoring run ------------------------------------------------------------------------

    @property
    def _is_classifier(self) -> bool:
        return FAMILIES[self.manifest.loss.name].label_kind == "binary"

    @property
    def _data(self) -> DataSettings:
        """How the active party's rows were prepared."""
        path = self.federation.folder(self.manifest.run) / "model.json"
        stored = json.loads(path.read_text())
        return DataSettings.model_validate_json(json.dumps(stored["data"]))

    def _column(self, rows: Any, name: str) -> Vector:
        """One column of the scores, by the rows that were given."""
        with self._file(rows) as file:
            scored = self._scored(file)
            ids = self._ids(file)
        keys = zip(*(scored[column].to_pylist() for column in self._id_columns), strict=True)
        values = scored[name].to_numpy(zero_copy_only=False).astype(np.float64)
        found = dict(zip(keys, values.tolist(), strict=True))
        return np.array([found.get(key, np.nan) for key in ids], dtype=np.float64)

    def _scored(self, file: Path | None) -> Any:
        federation = self.federation
        name = scores_name(self.manifest.run, federation.ask("runs")["runs"])
        manifest = federation.scoring(self.wanted, self.manifest, name)
        run = federation.propose(manifest, rows=file)
        run.check(run.last())
        text = pa.csv.ConvertOptions(
            column_types=dict.fromkeys((*self._id_columns, "without"), pa.string()),
            strings_can_be_null=False,
        )
        path = federation.folder(name) / "predictions.csv"
        return pa.csv.read_csv(path, convert_options=text)

    @property
    def _id_columns(self) -> tuple[str, ...]:
        return self.federation.settings.data.id_columns

    def _ids(self, file: Path | None) -> list[tuple[str, ...]]:
        settings = self.federation.settings.data
        source = TableFile.of(settings) if file is None else TableFile(file)
        found: list[tuple[str, ...]] = []
        for chunk in source.chunks(self._id_columns):
            columns = [[str(cell) for cell in chunk[name].tolist()] for name in self._id_columns]
            found += zip(*columns, strict=True)
        return found

    @contextmanager
    def _file(self, rows: Any) -> Iterator[Path | None]:
        """The rows as a file that the service can read, removed when they are scored."""
        if rows is None or isinstance(rows, str | Path):
            yield None if rows is None else Path(rows).absolute()
            return
        table = Table.of(rows)
        folder = Path(self.federation.settings.state).absolute() / "to-score"
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        path = folder / f"{secrets.token_hex(8)}.parquet"
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as file:
                columns = [table.arrow(name) for name in table.names]
                parquet.write_table(pa.table(columns, names=list(table.names)), file)
            yield path
        finally:
            path.unlink(missing_ok=True)
