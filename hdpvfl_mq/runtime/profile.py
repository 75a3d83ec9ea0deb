"""The numeric profile: what bit-identical replay depends on; every hello contains it.

It owns naming the libraries; results differ with thread count and core type, so both are part of
the profile. hdpvfl_mq/engine/threads.py pins BLAS to one thread.
"""

from __future__ import annotations

import platform

import numpy as np
from threadpoolctl import threadpool_info

from hdpvfl_mq import __version__


def numeric_profile() -> str:
    """Versions, BLAS, threads and machine in one line.

    If numpy ships its own BLAS, only that one is named: whether another library has loaded its
    own BLAS depends on what else the process did, and a replay does other things.
    """
    pools = [pool for pool in threadpool_info() if pool["user_api"] == "blas"]
    own = [pool for pool in pools if "numpy" in str(pool.get("filepath", ""))]
    blas = ", ".join(
        f"{pool['internal_api']} {pool.get('version')} {pool.get('architecture')} "
        f"x{pool['num_threads']}"
        for pool in own or pools
    )
    return (
        f"hdpvfl-mq {__version__}; python {platform.python_version()}; numpy {np.__version__}; "
        f"blas {blas or 'unknown'}; {platform.machine()}"
    )
