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

from tests.memo import remember, share_tables  # noqa: E402 - the sources are importable now

remember()
share_tables()

HEADER = (
    f"{'loss':<16}{'penalty':<13}{'data':<10}{'reference':<28}"
    f"{'weights':<10}{'predictions':<13}objective"
)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: Any, log: Any) -> Any:
    """Files that wait for processes run beside files that compute."""
    if config.getoption("dist") != "loadfile":
        return None
    from tests.spread import Spread  # noqa: PLC0415 - xdist is loaded where it is used

    return Spread(config, log)


def pytest_collection_modifyitems(config: Any, items: list[Any]) -> None:
    """Small files come last, so workers end together. A file's tests stay in their order."""
    first = {item.path: item for item in reversed(items)}
    small = {path for path, item in first.items() if _is_small(item)}
    items.sort(key=lambda item: item.path in small)
    if not config.pluginmanager.hasplugin("timeout"):  # planted faults are tried without it
        return
    for item in items:  # a slow test may take as long as it likes; any other that hangs fails
        if item.get_closest_marker("slow"):
            item.add_marker(pytest.mark.timeout(0))


def pytest_collection_finish() -> None:
    """What was imported stays: no search for garbage walks it again, no fork copies it for that."""
    gc.enable()
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 10, 10)  # tests make few cycles, and each search walks what they share


def _is_small(item: Any) -> bool:
    folder = item.path.relative_to(ROOT / "tests").parts[0]
    in_seconds = item.get_closest_marker("seconds")
    return folder in ("contracts", "golden", "unit") and not in_seconds


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
