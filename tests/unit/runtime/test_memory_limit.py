"""A party's process has a limit of its memory, and ends in a sentence when it is reached."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.seconds

PROGRAM = """
import sys
from pathlib import Path
from hdpvfl_mq.runtime.process import run_process
from schemas.base import Strict

class Settings(Strict):
    memory_max_gib: float | None = None

async def hoard(settings):
    held = [bytearray(2**26) for _ in range(16)]  # 1 GiB
    return "completed" if held else ""

sys.exit(run_process(Settings, Path(sys.argv[1]), hoard))
"""


@pytest.mark.parametrize(("setting", "code"), [("memory_max_gib = 0.5", 2), ("", 0)])
def test_a_process_over_its_memory_ends_with_a_sentence(tmp_path, setting, code):
    settings = tmp_path / "shop.toml"
    settings.write_text(setting)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(settings)],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=False,
    )
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    assert ("set memory_max_gib higher" in done.stderr) == (code == 2)
