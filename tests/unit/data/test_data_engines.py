"""Preparation by workers: the same bits and the same errors as in one process."""

from __future__ import annotations

import gzip
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyarrow import csv, parquet

from hdpvfl_mq.data import row_groups
from hdpvfl_mq.data.preprocess import PreparedData, prepare, prepare_mapped
from hdpvfl_mq.data.readers import TableFile
from hdpvfl_mq.engine.port import LOCAL, Engine
from hdpvfl_mq.engine.processes import ProcessEngine
from hdpvfl_mq.errors import DataError
from schemas.data import ColumnRule, DataSettings, NamedColumn
from tests.unit.data.test_data_damaged import DAMAGED, SECRET

pytestmark = pytest.mark.seconds

SETTINGS = DataSettings(
    label_column="y",
    weight_column="w",
    default=ColumnRule(centre="learn", scale="learn", missing="learn"),
    rules=(NamedColumn(name="city", categories="learn", missing_category="none"),),
)


@pytest.fixture(scope="module")
def engine() -> Iterator[ProcessEngine]:
    engine = ProcessEngine(2)
    yield engine
    engine.close()


class Counted:
    """An engine that kills a worker while it prepares, and counts what it prepared."""

    def __init__(self, engine: ProcessEngine, *, kills: bool = False) -> None:
        self.engine, self.kills, self.pieces = engine, kills, 0
        self.allocate_rows, self.sees_ids = engine.allocate_rows, True

    def each(self, kernel: Any, pieces: Any) -> Iterator[Any]:
        return self._counted(self.engine.each(kernel, pieces))

    def read(self, kernel: Any, pieces: Any) -> Iterator[Any]:
        return self._counted(self.engine.read(kernel, pieces))

    def _counted(self, results: Iterator[Any]) -> Iterator[Any]:
        for found in results:
            if self.kills and self.pieces == 3:
                os.kill(self.engine.pids[0], signal.SIGKILL)
            self.pieces += 1
            yield found


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_groups, "_PIECE_CELLS", 1)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    dice = np.random.default_rng(5)
    cells = dice.normal(size=(997, 3))
    lines = ["id,y,w,city,a,b,c"]
    for place, row in enumerate(cells.tolist()):
        city = ("Rome", '"a, b"', "", "Oslo")[place % 4]
        numbers = [*row[:2], "" if place % 11 == 3 else row[2]]
        lines.append(",".join(map(str, [f"k{place}", place % 2, 1.5, city, *numbers])))
    path = tmp_path / "rows.csv"
    path.write_text("\n".join(lines))
    return path


@pytest.fixture(params=["csv", "csv.gz", "parquet"])
def any_file(request: pytest.FixtureRequest, file: Path) -> Path:
    """The same rows in a file that workers read, that they are sent, and in row groups."""
    path = file.with_name(f"rows.{request.param}")
    if request.param == "csv.gz":
        path.write_bytes(gzip.compress(file.read_bytes()))
    elif request.param == "parquet":
        table = csv.read_csv(file, convert_options=csv.ConvertOptions(strings_can_be_null=True))
        parquet.write_table(table, path, row_group_size=93)
    return path


def bits(data: PreparedData) -> list[bytes]:
    arrays = (data.X, data.y, data.weights)
    text = data.settings.model_dump_json()
    return [
        data.fingerprint,
        text.encode(),
        *(each.tobytes() for each in arrays if each is not None),
    ]


@pytest.mark.parametrize("kills", [False, True])
@pytest.mark.parametrize("on_disk", [False, True])
def test_workers_prepare_the_same_bits(
    engine: ProcessEngine, any_file: Path, *, on_disk: bool, kills: bool
) -> None:
    source = TableFile(any_file, chunk_cells=700)  # ten chunks

    def prepared(engine: Engine) -> PreparedData:
        if not on_disk:
            return prepare(source, SETTINGS, role="active", engine=engine)
        return prepare_mapped(
            source, SETTINGS, np.empty, lambda _: None, role="active", engine=engine
        )

    counted = Counted(engine, kills=kills)
    assert bits(prepared(counted)) == bits(prepared(LOCAL))
    pieces = 5 if any_file.suffix == ".parquet" else 10
    assert counted.pieces == (2 * pieces if on_disk else pieces)


def fault(path: Path, engine: Engine) -> str:
    """The error's text; a long file is read in tens of chunks, not in a thousand."""
    files = path.rglob("*") if path.is_dir() else [path]
    cells = max(6, sum(each.stat().st_size for each in files) // 40)
    with pytest.raises(DataError) as caught:
        prepare(TableFile(path, chunk_cells=cells), DataSettings(), role="passive", engine=engine)
    assert caught.value.__cause__ is None
    return str(caught.value)


@pytest.mark.parametrize("kind", [kind for kind in DAMAGED if kind != "binary"])
def test_faults_have_the_same_text_whoever_prepares(
    engine: ProcessEngine, tmp_path: Path, capfd: pytest.CaptureFixture[str], kind: str
) -> None:
    name, content, _ = DAMAGED[kind]
    path = tmp_path / name
    path.write_bytes(content) if isinstance(content, bytes) else content(path)
    assert fault(path, engine) == fault(path, LOCAL)
    assert SECRET not in "".join(capfd.readouterr())


def test_a_fault_late_in_a_file_is_named_by_its_row(engine: ProcessEngine, file: Path) -> None:
    lines = file.read_text().splitlines()
    lines[900] = lines[900].replace("k899", "")
    lines[951] = f"{lines[951].rpartition(',')[0]},{SECRET}"
    file.write_text("\n".join(lines))
    source, texts = TableFile(file, chunk_cells=700), set()
    for each in (engine, LOCAL):
        with pytest.raises(DataError) as caught:
            prepare(source, SETTINGS, role="active", engine=each)
        texts.add(str(caught.value))
    assert len(texts) == 1
    assert "column 'c', row 951: the cell is not a number" in (text := texts.pop())
    assert "column 'id', row 900: the id is empty" in text
    assert SECRET not in text


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("cell", ["-inf", "1e300"])
def test_a_cell_that_cannot_be_squared_is_refused_before_it_is(file: Path, cell: str) -> None:
    lines = file.read_text().splitlines()
    lines[9] = f"{lines[9].rpartition(',')[0]},{cell}"
    file.write_text("\n".join(lines))
    with pytest.raises(DataError, match="column 'c', row 9: the cell is"):
        prepare(TableFile(file, chunk_cells=700), SETTINGS, role="active")


def test_workers_import_no_pandas(engine: ProcessEngine, file: Path) -> None:
    """Bug: pyarrow imported it in every worker, for half a second and 50 MB."""
    prepare(TableFile(file, chunk_cells=700), SETTINGS, role="active", engine=engine)
    looks = ["'pyarrow' in __import__('sys').modules", "'pandas' in __import__('sys').modules"]
    assert list(engine.each(eval, [(look,) for look in looks])) == [True, False]
