"""Start and end of a process: load settings, handle signals, return an exit code.

It owns exit codes, the messages at the end and the limits the process sets with the operating
system; it knows no role.
"""

from __future__ import annotations

import asyncio
import os
import resource
import signal
import sys
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Protocol, TypeVar

import uvloop
from pydantic import BaseModel

from hdpvfl_mq.engine.core_dumps import forbid_core_dumps
from hdpvfl_mq.errors import EXIT_BY_OUTCOME, HdpvflError, OperatorError, of_the_system
from hdpvfl_mq.runtime.runner import Stopped
from hdpvfl_mq.runtime.settings import load_settings
from schemas.base import printable

EXIT_STOPPED = 130
DESCRIPTORS = 65_536
PARENT_VARIABLE = "HDPVFL_PARENT"  # exit when this parent process dies
PARENT_POLL_S = 0.5
OUT_OF_MEMORY = (
    "the process has no memory left; set memory_max_gib higher or use fewer rows, then start the "
    "same command again: nothing was sent after the last commit"
)

Settings = TypeVar("Settings", bound=BaseModel)


class Stoppable(Protocol):
    """A run or a service that can be asked to end."""

    def stop(self) -> None: ...


def run_process(
    schema: type[Settings],
    path: Path,
    run: Callable[[Settings], Coroutine[None, None, str]],
    failed: Callable[[Settings, str], None] = lambda settings, reason: None,
) -> int:
    """Load settings, run to the outcome, return the exit code; print known errors in one line."""
    settings: Settings | None = None
    harden()
    try:
        settings = load_settings(schema, path)
        limit_memory(getattr(settings, "memory_max_gib", None))  # the broker has its own limit
        return EXIT_BY_OUTCOME.get(uvloop.run(run(settings)), 1)
    except Stopped:
        print("stopped; start the same command again to go on", file=sys.stderr)
        return EXIT_STOPPED
    except MemoryError:
        print(f"{path}: {OUT_OF_MEMORY}", file=sys.stderr)
        return OperatorError.exit_code
    except (HdpvflError, OSError) as stop:
        text = printable(str(stop) if isinstance(stop, HdpvflError) else of_the_system(stop))
        if settings is not None:
            with suppress(OSError):  # the disk may be the cause of the failure
                failed(settings, text)
        print(text if text.startswith(str(path)) else f"{path}: {text}", file=sys.stderr)
        return stop.exit_code if isinstance(stop, HdpvflError) else OperatorError.exit_code


def say(text: str) -> None:
    """One line for the operator while a process waits."""
    print(printable(text), file=sys.stderr, flush=True)


def harden() -> None:
    """Forbid core dumps and debuggers, as secrets are in memory; make files private to their owner.

    Raise descriptors to the hard limit: connections of strangers must leave enough for files.
    """
    os.umask(0o077)
    forbid_core_dumps()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def limit_memory(most_gib: float | None) -> None:
    """Limit the memory of this process, by default to the memory of the machine.

    Mapped files do not count: rows on disk may exceed memory.
    """
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    most = machine if most_gib is None else int(most_gib * 2**30)
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (most, hard))


def stop_on_signals(running: Stoppable) -> None:
    """On Ctrl-C, SIGTERM or the death of the parent in PARENT_VARIABLE, stop after the turn."""
    loop = asyncio.get_running_loop()
    for name in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(name, running.stop)
    parent = os.environ.get(PARENT_VARIABLE)
    if parent is not None:
        _watch_parent(running, int(parent), loop)


def _watch_parent(running: Stoppable, parent: int, loop: asyncio.AbstractEventLoop) -> None:
    if os.getppid() != parent:  # the parent was killed and could not end its children
        running.stop()
        return
    loop.call_later(PARENT_POLL_S, _watch_parent, running, parent, loop)


def say_how_it_ended(name: str, outcome: str, reason: str) -> None:
    """Print why a run did not complete."""
    if outcome != "completed":
        print(f"{name}: run {outcome}: {printable(reason)}", file=sys.stderr)
