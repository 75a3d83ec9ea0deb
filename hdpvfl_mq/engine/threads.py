"""One BLAS thread in every process that computes; it imports no other part of the project."""

from __future__ import annotations

from typing import Any

from threadpoolctl import threadpool_limits


def pin_threads() -> Any:
    """Limit BLAS to one thread; used in `with`, the limit ends there, else with the process."""
    return threadpool_limits(limits=1, user_api="blas")
