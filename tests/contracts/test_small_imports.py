"""What a process does not need is not imported: that costs every start time and memory."""

from __future__ import annotations

import ast
import inspect
import os
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import pytest

import hdpvfl_mq
import parties.__main__
from hdpvfl_mq.app.demo import warm

ROOT = Path(__file__).parents[2]
LARGE = {"numpy", "pyarrow", "sklearn", "scipy", "pandas", "cryptography", "rich", "jinja2"}
# Imported by a first call: of pyarrow's methods, of np.unique, of a value that Arrow makes.
LATE = {"pyarrow.compute", "numpy.ma", "dateutil"}
# program -> large libraries that it may import, and modules that it may not
PROGRAMS = {
    "hdpvfl_mq.app.cli": (set(), {"pydantic", "asyncio", "zmq", "nacl", "email"}),
    "hdpvfl_mq.app.demo.nursery": (set(), {"pydantic", "zmq", "nacl", "email"}),
    "broker.__main__": (set(), {"multiprocessing", "threadpoolctl", "gmpy2", "zmq.asyncio"}),
    "parties.__main__": (
        {"numpy", "pyarrow", "cryptography"},
        {
            "pyarrow.fs",
            "pyarrow.parquet",
            "multiprocessing",
            "zmq.asyncio",
            "parties.process.service",
        }
        | LATE,
    ),
}


# What a party does after it has started, line by line in one interpreter.
PARTY = {
    "starts": "import parties.__main__, numpy as np",
    "measures its model": """
from hdpvfl_mq.glm.families import family
from hdpvfl_mq.glm.quality import quality
from schemas.model import LossSpec
quality(family(LossSpec()), np.arange(4.0), np.array([0.0, 1.0, 0.0, 1.0]))
""",
    "reads ids and plain numbers": """
import pathlib, tempfile
parties.__main__.leave_pandas_out()
from hdpvfl_mq.data.preprocess import prepare
from hdpvfl_mq.data.readers import TableFile
from schemas.data import DataSettings, NamedColumn
with tempfile.TemporaryDirectory() as folder:
    file = pathlib.Path(folder) / "rows.csv"
    file.write_text("id,y,size\\n1,0,2\\n2,1,3.5\\n")
    settings = DataSettings(id_columns=("id",), label_column="y")
    data = prepare(TableFile(str(file)), settings, role="active")
assert data.X.shape == (2, 1), data.X
""",
    "reads and matches rows": """
from hdpvfl_mq.privacy.ledger_sketch import IdSketch
rules = (
    NamedColumn(name="size", centre=0.0, scale=1.0, missing=0.0),
    NamedColumn(name="kind", categories=("a", "b")),
)
with tempfile.TemporaryDirectory() as folder:
    file = pathlib.Path(folder) / "rows.csv"
    file.write_text("id,name,size,kind\\n1,ada,2,a\\n2,bob,,b\\n")
    settings = DataSettings(id_columns=("id", "name"), rules=rules)
    data = prepare(TableFile(str(file)), settings, role="passive")
assert data.X.shape == (2, 3), data.X
IdSketch().joined(IdSketch(np.arange(9, dtype=np.uint64)))
""",
    "parses with pydantic": """
from pydantic.plugin import _loader
_loader.entry_points = None
assert not list(_loader.get_plugins())
assert _loader._plugins is None
""",
}


def modules_after(lines: Iterable[str]) -> list[set[str]]:
    """The modules of a new interpreter after each of these pieces of a program."""
    said = "".join(f"{line}\nimport sys; print(*sys.modules)\n" for line in lines)
    ended = subprocess.run(
        [sys.executable, "-c", said], capture_output=True, text=True, check=True, cwd=ROOT
    )
    return [set(each.split()) for each in ended.stdout.splitlines()]


@cache
def party() -> dict[str, set[str]]:
    return dict(zip(PARTY, modules_after(PARTY.values()), strict=True))


@pytest.mark.skipif(
    "COVERAGE_PROCESS_CONFIG" in os.environ, reason="coverage imports modules of its own"
)
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_imports_only_what_it_needs(program):
    allowed, forbidden = PROGRAMS[program]
    is_party = program == "parties.__main__"
    loaded = party()["starts"] if is_party else modules_after([f"import {program}"])[0]
    assert not loaded & ((LARGE - allowed) | forbidden)


def test_a_broker_that_takes_a_snapshot_needs_no_numpy():
    line = (
        "import broker.__main__; from schemas.tensor import Tensor; "
        "from hdpvfl_mq.node.frozen import to_plain; "
        "made = Tensor.of_counts((3, 2**40)); assert made.counts() == (3, 2**40); "
        "assert to_plain(made)['shape'] == (2,)"
    )
    assert "numpy" not in modules_after([line])[0]


def test_a_party_measures_its_model_without_scikit_learn():
    assert not {"sklearn", "scipy"} & party()["measures its model"]


def test_a_party_reads_and_matches_rows_with_what_it_has_imported():
    assert not LATE & party()["reads and matches rows"]


def test_a_party_reads_ids_and_plain_numbers_without_arrows_functions():
    assert "pyarrow._compute" not in party()["reads ids and plain numbers"]
    assert "pyarrow._compute" in party()["reads and matches rows"]  # it has categories


def test_the_demos_services_are_forked_with_all_that_a_service_imports():
    source = ast.parse(inspect.getsource(parties.__main__._stand))
    late = {node.module for node in ast.walk(source) if isinstance(node, ast.ImportFrom)}
    assert late == set(warm.SERVICES[warm.PARTIES])


def test_no_plugin_of_pydantic_is_looked_for():
    assert "parses with pydantic" in party()  # the interpreter has ended without an error
    line = "import broker.__main__; " + PARTY["parses with pydantic"].strip().replace("\n", "; ")
    modules_after([line])


def test_the_version_is_that_of_the_package():
    stated = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert hdpvfl_mq.__version__ == stated
