"""HDP-VFL: one generalized linear model from columns that several companies keep apart.

The estimators are imported when they are first asked for: a party's process needs none of them.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any

try:
    __version__ = version("hdpvfl-mq")
except PackageNotFoundError:  # running from a source tree that is not installed
    __version__ = "0+unknown"

__all__ = ["LedgerFolder", "VFLClassifier", "VFLRegressor", "__version__"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module("hdpvfl_mq.app.estimators"), name)
