"""Rows behind hdfs://: errors say what is missing, Java takes no signal, a cluster is read.

The last tests need a cluster. They run where HDPVFL_HDFS names a folder they may write to, such as
hdfs://127.0.0.1:8020/tmp/hdpvfl, and JAVA_HOME, ARROW_LIBHDFS_DIR and CLASSPATH are set.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import fs, parquet

from hdpvfl_mq.data import hadoop
from hdpvfl_mq.data.places import DataFile, files_at
from hdpvfl_mq.data.readers import TableFile
from hdpvfl_mq.errors import DataError, NetworkError, SettingsError

PLACE = "hdfs://name-node:8020/bank/people"
CLUSTER = os.environ.get("HDPVFL_HDFS", "").rstrip("/")
needs_cluster = [
    pytest.mark.slow,
    pytest.mark.skipif(not CLUSTER, reason="HDPVFL_HDFS names no folder of a Hadoop cluster"),
]


def test_without_jars_the_remedy_is_named(monkeypatch) -> None:
    monkeypatch.delenv("CLASSPATH", raising=False)
    with pytest.raises(SettingsError, match="CLASSPATH to what 'hadoop classpath --glob' prints"):
        files_at(PLACE)


def test_java_leaves_signals_and_memory_alone(monkeypatch) -> None:
    """Without -Xrs, Ctrl-C had no effect after the first address was read."""
    monkeypatch.setenv("CLASSPATH", "some.jar")
    monkeypatch.setenv("LIBHDFS_OPTS", "-Xmx512m")
    for _ in range(2):
        hadoop.set_up_java(PLACE)
    assert os.environ["LIBHDFS_OPTS"] == "-Xmx512m -Xrs -XX:ErrorFile=/dev/null"


class Silent:
    """What Arrow gives for a name node that does not answer: no path exists there."""

    type_name = "hdfs"
    asked = ""

    @classmethod
    def from_uri(cls, address: str) -> tuple[Any, str]:
        cls.asked = address
        return cls(), "/bank/people"

    def get_file_info(self, path: str) -> fs.FileInfo:
        return fs.FileInfo(path, fs.FileType.NotFound)


def test_a_name_node_that_does_not_answer_is_no_missing_file(monkeypatch) -> None:
    monkeypatch.setenv("CLASSPATH", "some.jar")
    monkeypatch.setenv("LIBHDFS_OPTS", "")
    monkeypatch.setattr(fs, "FileSystem", Silent)
    with pytest.raises(NetworkError, match="the name node does not answer; check the address"):
        files_at(PLACE)
    assert Silent.asked == f"{PLACE}?ipc.client.connect.max.retries.on.timeouts=0"


def test_workers_are_not_asked_to_read_it(tmp_path: Path, monkeypatch) -> None:
    """Each worker would start a Java machine, and those of a cluster may have none."""
    parquet.write_table(pa.table({"id": ["a"], "x": [1.0]}), tmp_path / "x.parquet")
    source = TableFile(tmp_path / "x.parquet")
    assert len(list(source.places(["x"], numeric=["x"]))) == 1
    monkeypatch.setattr(DataFile, "is_for_workers", False)
    assert list(source.places(["x"], numeric=["x"])) == []


def test_a_data_node_that_is_lost_is_no_damaged_file(tmp_path: Path, monkeypatch) -> None:
    def lost(file: DataFile) -> Any:
        raise OSError(255, "HDFS read failed. Detail: [errno 255] Unknown error 255")

    parquet.write_table(pa.table({"id": ["a"], "x": [1.0]}), tmp_path / "x.parquet")
    monkeypatch.setattr(DataFile, "random_access", lost)
    with pytest.raises(DataError, match=r"x\.parquet cannot be read: HDFS read failed"):
        list(TableFile(tmp_path / "x.parquet").chunks())


def in_java(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a program in a process of its own: Java stays in a process until it ends."""
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), CLUSTER, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


WRITE = """
    import sys
    import pyarrow as pa
    from pyarrow import csv, fs, parquet
    store, folder = fs.FileSystem.from_uri(sys.argv[1])
    table = pa.table({"id": [f"p{i}" for i in range(100)], "x": [float(i) for i in range(100)]})
    for number, region in enumerate(("north", "south")):
        store.create_dir(f"{folder}/people/region={region}")
        with store.open_output_stream(f"{folder}/people/region={region}/part.parquet") as out:
            parquet.write_table(table.slice(50 * number, 50), out)
    with store.open_output_stream(f"{folder}/people.csv.gz", compression="gzip") as out:
        csv.write_csv(table, out)
    """
READ = """
    import os, sys, time
    from hdpvfl_mq.data.preprocess import prepare
    from hdpvfl_mq.data.readers import TableFile
    from schemas.data import DataSettings
    rules = ({"name": "region", "categories": ("north", "south")},)
    for name, rules in (("people", rules), ("people.csv.gz", ())):
        source = TableFile(f"{sys.argv[1]}/{name}")
        how = DataSettings(id_columns=("id",), rules=rules)
        print(*prepare(source, how, role="passive").X.sum(axis=0), flush=True)
    os.kill(os.getpid(), int(sys.argv[2]))
    time.sleep(60)
    """


class TestCluster:
    pytestmark = needs_cluster

    def test_parquet_folders_and_packed_csv_are_read_and_ctrl_c_still_works(self) -> None:
        written = in_java(WRITE)
        assert written.returncode == 0, written.stderr
        read = in_java(READ, str(int(signal.SIGINT)))
        assert read.stdout.splitlines() == ["4950.0 50.0 50.0", "4950.0"], read.stderr
        assert "KeyboardInterrupt" in read.stderr
        assert read.returncode == -signal.SIGINT

    @pytest.mark.parametrize(
        ("place", "said"),
        [
            (f"{CLUSTER}/nobody.csv", "SettingsError: there is no file"),
            ("hdfs://127.0.0.1:1/people", "NetworkError: .*the name node does not answer"),
        ],
    )
    def test_a_missing_file_and_a_missing_name_node_are_told_apart(self, place, said) -> None:
        program = "import sys; from hdpvfl_mq.data.places import files_at; files_at(sys.argv[2])"
        done = in_java(program, place)
        assert done.returncode == 1
        assert re.search(said, done.stderr), done.stderr
