"""Large libraries that few test files need: every worker imports every file, not every library."""

from __future__ import annotations

from importlib import import_module
from typing import Any


class Lazily:
    """A module that is imported when the first of its names is used."""

    def __init__(self, module: str) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # pytest asks all that a test file holds for `__test__` and others
            raise AttributeError(name)
        return getattr(import_module(self._module), name)
