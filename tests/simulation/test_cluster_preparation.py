"""A Dask cluster prepares a party's file: the bits of one process, and no id on the cluster.

The workers are real processes, and one of them is killed in the middle.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv, parquet

from hdpvfl_mq.data import row_groups
from hdpvfl_mq.data.places import DataFile
from hdpvfl_mq.data.preprocess import PreparedData, prepare
from hdpvfl_mq.data.readers import TableFile
from hdpvfl_mq.engine.port import LOCAL, Engine, Unseen
from hdpvfl_mq.errors import DataError
from hdpvfl_mq.runtime.profile import numeric_profile
from schemas.data import ColumnRule, DataSettings
from tests.dask_cluster import DaskCluster

ROWS = 1000
SETTINGS = DataSettings(
    label_column="y", default=ColumnRule(centre="learn", scale="learn", missing="learn")
)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DaskCluster]:
    pytest.importorskip("distributed", reason="needs the extra cluster")
    cluster = DaskCluster(tmp_path_factory.mktemp("dask"))
    for _ in range(3):  # two tests kill one each
        cluster.add()
    yield cluster
    cluster.close()


@pytest.fixture
def told() -> list[str]:
    return []


@pytest.fixture
def engine(cluster: DaskCluster, told: list[str]) -> Iterator[Any]:
    from hdpvfl_mq.engine.cluster import ClusterEngine  # noqa: PLC0415 - needs the extra

    engine = ClusterEngine(cluster.address, profile=numeric_profile, say=told.append)
    engine.wait_for_workers(2 if len(cluster.workers) > 1 else 1)
    yield engine
    engine.close()


class Watched:
    """An engine that notes what workers answer, and loses one after the first answer."""

    sees_ids = False

    def __init__(self, engine: Any, kill: Any = None) -> None:
        self.engine, self.kill, self.answers = engine, kill, list[Any]()
        self.allocate_rows, self.each = engine.allocate_rows, engine.each

    def read(self, kernel: Any, pieces: Any) -> Iterator[Any]:
        for found in self.engine.read(kernel, pieces):
            if self.kill is not None and not self.answers:
                self.kill()
            self.answers.append(found)
            yield found


@pytest.fixture(params=["csv", "parquet"])
def file(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(row_groups, "_PIECE_CELLS", 1)
    dice = np.random.default_rng(2)
    cells = {name: dice.normal(size=ROWS) for name in "abc"}
    ids = [f"person {number}" for number in range(ROWS)]
    table = pa.table({"id": ids, "y": np.arange(ROWS) % 2, **cells})
    path = tmp_path / f"rows.{request.param}"
    if request.param == "csv":
        csv.write_csv(table, path)
    else:
        parquet.write_table(table, path, row_group_size=93)
    return path


def prepared(file: Path, engine: Engine) -> PreparedData:
    source = TableFile(file, chunk_cells=500)  # ten chunks
    return prepare(source, SETTINGS, role="active", engine=engine)


def test_a_cluster_prepares_the_bits_of_one_process(
    cluster: DaskCluster, engine: Any, file: Path, told: list[str]
) -> None:
    watched = Watched(engine, cluster.kill)
    here, there = prepared(file, LOCAL), prepared(file, watched)
    assert there.fingerprint == here.fingerprint
    assert there.settings == here.settings
    assert np.array_equal(there.ids[0], here.ids[0])
    assert len(watched.answers) >= 5
    assert all(chunk.ids == () for found in watched.answers for chunk in found)
    assert not told
    assert "person" not in cluster.log.read_text()


def test_a_file_that_workers_do_not_see_is_prepared_here(
    engine: Any, file: Path, told: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    watched, expected = Watched(engine), prepared(file, LOCAL).fingerprint
    monkeypatch.setattr(DataFile, "version", lambda _: (1, 1))  # of another file, to the workers
    assert prepared(file, watched).fingerprint == expected
    assert watched.answers == [Unseen()]
    assert len(told) == 1
    assert "under the same path" in told[0]


def test_faults_have_the_text_of_one_process(engine: Any, tmp_path: Path) -> None:
    lines = ["id,y,a", *(f"k{n},{n % 2},{'' if n == 30 else n}" for n in range(40))]
    lines[36] = ",0,2"
    path = tmp_path / "rows.csv"
    path.write_text("\n".join(lines))
    texts, source = set[str](), TableFile(path, chunk_cells=12)
    for each in (LOCAL, engine):
        with pytest.raises(DataError) as caught:
            prepare(source, DataSettings(label_column="y"), role="active", engine=each)
        texts.add(str(caught.value))
    assert len(texts) == 1
    assert "column 'a', row 31: the cell is empty" in (text := texts.pop())
    assert "column 'id', row 36: the id is empty" in text
