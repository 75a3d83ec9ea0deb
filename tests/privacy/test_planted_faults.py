"""A twentieth of the planted faults is tried with every commit, and the page lists all of them."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from scripts.mutants import ROOT, Mutant, mutants, table


def test_the_page_has_every_fault():
    page = (ROOT / "docs" / "mutants.md").read_text()
    assert page == table([(mutant, "killed", 0.0) for mutant in mutants()])


def test_a_fault_that_nobody_notices_survives_and_one_that_does_not_run_is_told(tmp_path: Path):
    """In a process of its own: it forks, and a test worker has threads."""
    harmless = Mutant(
        name="harmless",
        file="schemas/ids.py",
        old="MAX_PASSIVES = 512",
        new="MAX_PASSIVES = 512 + 0",
        tests=("tests/unit/psi/test_psi_order.py::test_no_ids_have_an_order",),
    )
    broken = replace(harmless, new="MAX_PASSIVES = = 512")
    code = (
        "from pathlib import Path; from scripts import mutants; Mutant = mutants.Mutant; "
        f"mutants._own_tree(Path({str(tmp_path)!r})); "
        f"print(*(mutants._tried(m)[0] for m in ({harmless!r}, {broken!r})), sep='/')"
    )
    told = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert told.stdout.strip() == "SURVIVED/DOES NOT RUN"


def test_slow_tests_are_collected_without_the_plugins_that_faults_are_tried_without():
    """They have no time limit, which is a mark of a plugin."""
    plugins = ("-p", "pytest_asyncio.plugin", "-p", "_hypothesis_pytestplugin")
    slow = "tests/integration/test_bad_network.py"
    found = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "-m", "slow", *plugins, slow],
        cwd=ROOT,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stdout + found.stderr


def test_a_twentieth_of_the_faults_is_noticed():
    """Drawn by the commit; `make mutants` tries all."""
    told = subprocess.run(
        [sys.executable, "scripts/mutants.py", "--draw"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert told.returncode == 0, told.stdout + told.stderr
