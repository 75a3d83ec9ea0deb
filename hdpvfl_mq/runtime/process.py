"""The life of a process around its run: settings in, signals, exit code out.

It owns exit codes and what an ending prints; it knows no role.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel

from hdpvfl_mq.errors import HdpvflError
from hdpvfl_mq.runtime.runner import Runner, Stopped
from hdpvfl_mq.runtime.settings import load_settings

EXIT_STOPPED = 130
PARENT_VARIABLE = "HDPVFL_PARENT"  # set by a parent without which this process shall not live
PARENT_POLL_S = 0.5
EXIT_BY_OUTCOME = {"completed": 0, "refused": 3, "withdrawn": 3, "deadline": 4, "mismatch": 2}

Settings = TypeVar("Settings", bound=BaseModel)


def run_process(
    schema: type[Settings],
    path: Path,
    run: Callable[[Settings], Coroutine[None, None, str]],
    failed: Callable[[Settings, str], None] = lambda settings, reason: None,
) -> int:
    """Load settings, run to the outcome, return the exit code; a known error prints one line."""
    settings: Settings | None = None
    try:
        settings = load_settings(schema, path)
        return EXIT_BY_OUTCOME.get(asyncio.run(run(settings)), 1)
    except Stopped:
        print("stopped; start the same command again to go on", file=sys.stderr)
        return EXIT_STOPPED
    except HdpvflError as stop:
        if settings is not None:
            failed(settings, str(stop))
        text = str(stop)
        print(text if text.startswith(str(path)) else f"{path}: {text}", file=sys.stderr)
        return stop.exit_code


def stop_on_signals(runner: Runner) -> None:
    """Ctrl-C, SIGTERM and the death of a parent that named itself end the runner after its turn."""
    loop = asyncio.get_running_loop()
    for name in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(name, runner.stop)
    parent = os.environ.get(PARENT_VARIABLE)
    if parent is not None:
        _watch_parent(runner, int(parent), loop)


def _watch_parent(runner: Runner, parent: int, loop: asyncio.AbstractEventLoop) -> None:
    if os.getppid() != parent:  # it was killed and could not end its children itself
        runner.stop()
        return
    loop.call_later(PARENT_POLL_S, _watch_parent, runner, parent, loop)


def say_how_it_ended(name: str, outcome: str, reason: str) -> None:
    """Say on the console why a run did not complete."""
    if outcome != "completed":
        print(f"{name}: run {outcome}: {reason}", file=sys.stderr)
