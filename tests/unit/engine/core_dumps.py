"""A kernel that tells whether its process may be dumped."""

from __future__ import annotations

import ctypes
import resource

PR_GET_DUMPABLE = 3


def dumps(_: int) -> tuple[int, tuple[int, int]]:
    """Whether this process may be dumped, and how large a core file may be."""
    dumpable = ctypes.CDLL(None).prctl(PR_GET_DUMPABLE, 0, 0, 0, 0)
    return dumpable, resource.getrlimit(resource.RLIMIT_CORE)
