"""Forked workers: every test runs once, a file in one process, and a dead worker is a failure."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.seconds
ROOT = Path(__file__).parents[2]
FILES = {
    "test_shared.py": """
import os, pytest
PIDS = set()
@pytest.mark.parametrize("n", range(20))
def test_one_process(n, tmp_path):
    PIDS.add(os.getpid())
    assert len(PIDS) == 1 and os.getpid() != os.getppid() and not list(tmp_path.iterdir())
""",
    "test_mixed.py": """
import pytest, warnings
def test_fails():
    print("what it printed")
    assert 1 == 2
@pytest.mark.skip(reason="not today")
def test_skipped(): pass
def test_warns(): warnings.warn("mind the step", UserWarning)
""",
    "test_dies.py": """
import os
def test_before(): pass
def test_dies(): os._exit(3)
def test_never_run(): pass
""",
    "test_more.py": "def test_more(): pass",
}


def spread(folder: Path, *options: str, files: dict[str, str] = FILES) -> tuple[int, str]:
    for name, text in files.items():
        (folder / name).write_text(text)
    words = ["-m", "pytest", "-p", "tests.forks", "--forks", "2", "-c", os.devnull, *options]
    command = [sys.executable, *words, f"--rootdir={folder}", str(folder)]
    given = {**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    run = subprocess.run(
        command, capture_output=True, text=True, check=False, env=given, timeout=120
    )
    return run.returncode, run.stdout + run.stderr


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> tuple[int, str]:
    return spread(tmp_path_factory.mktemp("whole"))


def test_every_result_is_counted_once(whole):
    code, said = whole
    assert code == 1
    assert re.search(r"3 failed, 23 passed, 1 skipped, 1 warning", said), said


def test_what_a_worker_saw_is_shown(whole):
    assert "what it printed" in whole[1]
    assert "mind the step" in whole[1]


def test_tests_of_a_dead_worker_are_failures(whole):
    said = whole[1]
    assert said.count("the worker of this file ended before this test did") >= 2
    assert re.search(r"FAILED.*test_dies.py::test_dies", said)
    assert re.search(r"FAILED.*test_dies.py::test_never_run", said)


def test_a_first_failure_can_end_it(tmp_path):
    code, said = spread(tmp_path, "-x")
    assert code == 1
    assert "stopping after 1 failures" in said


def test_threads_that_a_fork_would_lack_are_named(tmp_path):
    starts = "import threading, time\nthreading.Thread(target=time.sleep, args=(1,)).start()\n"
    code, said = spread(tmp_path, files={"test_thread.py": starts + "def test_it(): pass\n"})
    assert code == 4
    assert "started threads when it was imported: python" in said
