"""Forbids core dumps of a process that has secrets in memory, and debuggers to attach to it.

It owns that request to the operating system. A newly started program does not inherit it.
"""

from __future__ import annotations

import ctypes
import resource
import sys

_PR_SET_DUMPABLE = 4


def forbid_core_dumps() -> None:
    """Keep this process's memory to itself.

    The limit alone is not enough: a system that pipes core dumps to a program ignores it.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
