"""A cache of values that can be computed again; it is not part of any state.

It owns the cached values; it does not know what they mean. A role may keep large arrays here: the
cache may be emptied at any time, and the same values are computed again from the state.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

_T = TypeVar("_T")


class Memo:
    """One value for each name, kept as long as callers ask with the same key."""

    def __init__(self) -> None:
        self._made: dict[Hashable, tuple[Hashable, Any]] = {}

    def once(self, name: Hashable, key: Hashable, make: Callable[[], _T]) -> _T:
        """The result of `make`; called again if another key was requested in between."""
        held = self._made.get(name)
        if held is None or held[0] != key:
            held = self._made[name] = (key, make())
        made: _T = held[1]
        return made

    def forget(self) -> None:
        """Drop all values."""
        self._made.clear()
