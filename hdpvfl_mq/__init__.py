"""HDP-VFL: one generalized linear model from columns that several companies keep apart.

The estimators are imported on first access: a party's process needs none of them.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import Any

try:
    __version__ = version("hdpvfl-mq")
except PackageNotFoundError:  # running from a source tree that is not installed
    __version__ = "0+unknown"

_HOMES = {
    "Federation": "hdpvfl_mq.app.live",
    "LedgerFolder": "hdpvfl_mq.app.estimators",
    "VFLClassifier": "hdpvfl_mq.app.estimators",
    "VFLRegressor": "hdpvfl_mq.app.estimators",
}
__all__ = ["Federation", "LedgerFolder", "VFLClassifier", "VFLRegressor", "__version__"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
