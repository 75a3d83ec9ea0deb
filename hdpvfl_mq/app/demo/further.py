"""The folder with further data sets, which the environment may name."""

from __future__ import annotations

import os
from pathlib import Path


def data_folder() -> Path | None:
    """The folder with further data sets, if the environment names one."""
    named = os.environ.get("HDPVFL_DATA")
    return Path(named) if named else None
