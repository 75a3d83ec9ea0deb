"""hdpvfl_mq/data/without_pandas: a party's process imports what it needs, and no more."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.seconds

PROGRAM = """
import sys
import broker.__main__, parties.__main__
from hdpvfl_mq.data.columns import as_float, categories, ids
from hdpvfl_mq.data.tables import Table
from hdpvfl_mq.data.without_pandas import leave_pandas_out

leave_pandas_out()
table = Table.of({"id": ["a", "b"], "x": [1.0, None], "c": ["red", ""]})
assert as_float(table, "x")[0] == 1.0 and ids(table, "id")[1] == "b"
assert categories(table, "c").words == ("red", "")
heavy = {"pandas", "sklearn", "scipy", "jinja2", "matplotlib", "rich"} & set(sys.modules)
assert not heavy, heavy
import pandas  # still there for who wants it
"""


def test_a_party_reads_its_rows_without_large_libraries(tmp_path):
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
