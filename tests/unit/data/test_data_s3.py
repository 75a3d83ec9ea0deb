"""Files behind s3:// are read through a real server on the loopback interface (moto's).

It takes more than three seconds, because the server is a process of its own.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv, fs, parquet

from hdpvfl_mq.data.preprocess import prepare
from hdpvfl_mq.data.readers import TableFile
from hdpvfl_mq.errors import NetworkError, SettingsError
from schemas.data import DataSettings

pytestmark = pytest.mark.slow
KEYS = {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing"}
TABLE = pa.table({"id": ["a", "b", "c"], "x": [1.0, 2.0, 4.0]})


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


@pytest.fixture(scope="module")
def where() -> Iterator[str]:
    """How an address names the server; the bucket has a CSV file and a folder of Parquet."""
    pytest.importorskip("moto", reason="needs moto[server]")
    port = _free_port()
    server = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    os.environ.update(KEYS)
    try:
        for line in server.stderr or ():
            if "Running on" in line:
                break
        store = fs.S3FileSystem(
            endpoint_override=f"127.0.0.1:{port}",
            scheme="http",
            region="us-east-1",
            allow_bucket_creation=True,
        )
        store.create_dir("bucket")
        with store.open_output_stream("bucket/people.csv") as out:
            csv.write_csv(TABLE, out)
        for part in range(2):
            with store.open_output_stream(f"bucket/people/part-{part}.parquet") as out:
                parquet.write_table(TABLE, out)
        yield f"?endpoint_override=127.0.0.1:{port}&scheme=http&region=us-east-1"
    finally:
        server.kill()
        server.wait()
        for name in KEYS:
            os.environ.pop(name)


def prepared(place: str):
    return prepare(TableFile(place), DataSettings(), role="passive")


def test_a_csv_file_and_a_folder_of_parquet_are_read(where: str) -> None:
    one = prepared(f"s3://bucket/people.csv{where}")
    assert np.array_equal(one.X[:, 0], [1.0, 2.0, 4.0])
    assert list(one.ids[0]) == ["a", "b", "c"]
    assert np.array_equal(prepared(f"s3://bucket/people{where}").X[:, 0], [1.0, 2.0, 4.0] * 2)


def test_a_missing_file_and_a_missing_bucket_are_told(where: str) -> None:
    with pytest.raises(SettingsError, match="there is no file"):
        prepared(f"s3://bucket/nobody.csv{where}")
    with pytest.raises((SettingsError, NetworkError)):
        prepared(f"s3://no-such-bucket/people.csv{where}")
