"""Runs a program and counts in which file its processor time goes: a sampling profiler.

    python -m scripts.benches.sampled OUT.json MODULE ARGUMENTS...

It owns the sampling; it changes nothing in the program. A timer of the kernel fires every few
milliseconds of processor time; a sample counts for the innermost frame in the project's files, so a
library's time counts for the file that called it. While the main thread waits, the time is that of
ZeroMQ's own threads. Forked children are sampled too.
"""

from __future__ import annotations

import atexit
import json
import os
import runpy
import signal
import sys
from collections import Counter
from pathlib import Path
from types import FrameType

EVERY_S = 0.002
ROOT = str(Path(__file__).parents[2]) + os.sep
WAITING, STARTING = "(ZeroMQ's threads: TCP and CURVE)", "(imports)"
_counts: Counter[str] = Counter()
_out = Path()


def _file_of(frame: FrameType | None) -> str:
    top = frame
    if top is not None and top.f_code.co_filename.endswith("selectors.py"):
        return WAITING
    found = ""
    while frame is not None:
        name = frame.f_code.co_filename
        if name.startswith("<frozen importlib"):
            return STARTING
        is_own = name.startswith(ROOT) and "site-packages" not in name and "sampled" not in name
        if not found and is_own:
            found = name.removeprefix(ROOT)
        frame = frame.f_back
    if found:
        return found
    name = top.f_code.co_filename if top is not None else ""
    return f"({'asyncio' if 'asyncio' in name else Path(name).stem})"


def _sample(number: int, frame: FrameType | None) -> None:
    _counts[_file_of(frame)] += 1


def _begin() -> None:
    _counts.clear()
    signal.signal(signal.SIGPROF, _sample)
    signal.setitimer(signal.ITIMER_PROF, EVERY_S, EVERY_S)


def _end() -> None:
    signal.setitimer(signal.ITIMER_PROF, 0.0)
    _out.with_suffix(f".{os.getpid()}.json").write_text(json.dumps(_counts))


def _leave(code: int) -> None:
    _end()
    _exit(code)


def read(out: Path) -> Counter[str]:
    """The samples of all processes that wrote to `out`."""
    found: Counter[str] = Counter()
    for path in out.parent.glob(f"{out.stem}.*.json"):
        found.update(json.loads(path.read_text()))
    return found


if __name__ == "__main__":
    _out = Path(sys.argv[1]).absolute()
    atexit.register(_end)
    os.register_at_fork(after_in_child=_begin)
    _exit = os._exit
    os._exit = _leave  # type: ignore[assignment]  # forked services leave without atexit
    _begin()
    sys.argv = sys.argv[2:]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
