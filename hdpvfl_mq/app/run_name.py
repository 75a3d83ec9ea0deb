"""The name of a run to which nobody has given one.

It owns its form; it knows no run.
"""

from __future__ import annotations

from datetime import datetime

_PREFIX_MAX = 40  # a name has at most 64 characters


def run_name(of: str) -> str:
    """A name for a run that is proposed now; a short run may be followed within the same second."""
    return f"{of[:_PREFIX_MAX]}-{datetime.now():%Y%m%d-%H%M%S-%f}"
