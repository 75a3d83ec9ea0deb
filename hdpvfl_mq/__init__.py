"""HDP-VFL: one generalized linear model from columns that several companies keep apart.

It owns the library: mathematics, methods, privacy, entity resolution, data, wire, journal, node,
runtime, audit and commands. The roles are in `parties` and `broker`, what crosses a boundary in
`schemas`. Four modules are in no package, because several packages and the roles share them:
`machine` (the contract of a role), `errors` (the exception tree), `endings` (why a run ends early)
and `durable` (SQLite files whose commits are on disk). The estimators are imported on first access:
a party's process needs none of them.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.1.0"  # as in pyproject.toml; asking the installed metadata costs every start

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
