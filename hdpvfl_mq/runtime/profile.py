"""The numeric profile: what bit-identical replay depends on, stated in every hello.

It owns pinning BLAS to one thread and naming the libraries; results differ with thread count and
core type, so both are part of the profile.
"""

from __future__ import annotations

import platform
from typing import Any

import numpy as np
from threadpoolctl import threadpool_info, threadpool_limits

from hdpvfl_mq import __version__


def pin_threads() -> Any:
    """One BLAS thread for the life of the process; keep the returned object."""
    return threadpool_limits(limits=1, user_api="blas")


def numeric_profile() -> str:
    """Versions, BLAS, threads and machine in one line."""
    blas = ", ".join(
        f"{pool['internal_api']} {pool.get('version')} {pool.get('architecture')} "
        f"x{pool['num_threads']}"
        for pool in threadpool_info()
        if pool["user_api"] == "blas"
    )
    return (
        f"hdpvfl-mq {__version__}; python {platform.python_version()}; numpy {np.__version__}; "
        f"blas {blas or 'unknown'}; {platform.machine()}"
    )
