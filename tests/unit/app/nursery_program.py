"""A program that nursery tests start: it says what it is, then does what its settings say."""

from __future__ import annotations

import json
import os
import random
import time
from pathlib import Path

from hdpvfl_mq.runtime.process import PARENT_VARIABLE


def main(settings: Path) -> int:
    """Write about this process beside the settings; end with a code, fail, or wait."""
    wanted = settings.read_text()
    said = {
        "pid": os.getpid(),
        "parent": os.getppid(),
        "watched": int(os.environ[PARENT_VARIABLE]),
        "name": Path("/proc/self/comm").read_text().strip(),
        "threads": len(list(Path("/proc/self/task").iterdir())),
        "dice": random.random(),
        "input": str(Path("/proc/self/fd/0").readlink()),
    }
    aside = settings.with_suffix(".part")
    aside.write_text(json.dumps(said))
    aside.rename(settings.with_suffix(".json"))
    print("output of", settings.stem)
    if wanted == "fail":
        raise ValueError("it failed")
    while wanted == "wait":
        if os.getppid() != said["watched"] or settings.with_suffix(".over").exists():
            return 0
        time.sleep(0.05)
    return int(wanted)
