"""Makes `tests.federation` and the sources importable, however pytest is started.

It also prints the comparison with the reference libraries (tests/unit/glm) as one table at the end.
The hook is here because the controller of parallel workers reads no conftest in subfolders.
"""

from __future__ import annotations

import gc
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

gc.disable()  # until all is collected: imports leave little garbage and much to walk

# Bit-identical results are promised for one BLAS thread; processes the tests start inherit this.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# Tests sync thousands of small files, which takes no time in memory. They show what a kill leaves
# or simulate the loss of power, so none depends on the disk.
MEMORY = Path("/dev/shm")
if os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > 4 * 2**30:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))

# An example that takes long says how busy the machine is, not that a property is broken.
settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("busy")

from tests.memo import remember  # noqa: E402 - the sources are importable from here on

remember()

HEADER = (
    f"{'loss':<16}{'penalty':<13}{'data':<10}{'reference':<28}"
    f"{'weights':<10}{'predictions':<13}objective"
)


def pytest_collection_modifyitems(items: list[Any]) -> None:
    """Mix files that wait for processes with files that compute; small files come last.

    So workers seldom wait all at once, and end together. A file's tests stay in their order.
    """
    first = {item.path: item for item in reversed(items)}
    files = {path: _kind(item) for path, item in reversed(first.items())}
    place = {
        path: number / len(same) + (kind == "small")
        for kind in ("waiting", "computing", "small")
        if (same := [path for path, its in files.items() if its == kind])
        for number, path in enumerate(same)
    }
    items.sort(key=lambda item: place[item.path])
    for item in items:  # a slow test may take as long as it likes; any other that hangs fails
        if item.get_closest_marker("slow"):
            item.add_marker(pytest.mark.timeout(0))


def pytest_collection_finish() -> None:
    """What was imported stays: no search for garbage walks it again, no fork copies it for that."""
    gc.enable()
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 10, 10)  # tests make few cycles, and each search walks what they share


def _kind(item: Any) -> str:
    folder = item.path.relative_to(ROOT / "tests").parts[0]
    if folder in ("contracts", "golden", "unit") and not item.get_closest_marker("seconds"):
        return "small"
    return "waiting" if folder == "integration" else "computing"


def pytest_terminal_summary(terminalreporter: Any) -> None:
    lines = sorted(
        f"{value}{'' if outcome == 'passed' else '   FAILED'}"
        for outcome in ("passed", "failed")
        for report in terminalreporter.stats.get(outcome, [])
        for name, value in getattr(report, "user_properties", [])
        if name == "reference" and report.when == "call"
    )
    if lines:
        terminalreporter.section("relative difference from the reference libraries")
        for line in [HEADER, *lines]:
            terminalreporter.write_line(line)
