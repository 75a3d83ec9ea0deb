"""Values that are made once and can be made again: no part of any state.

It owns the memory of what was made; it knows no meaning of it. A role may keep large arrays here:
emptied at any time, the same is made again from what the state holds.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

_T = TypeVar("_T")


class Memo:
    """One value for each name, for as long as it is asked for with the same key."""

    def __init__(self) -> None:
        self._made: dict[Hashable, tuple[Hashable, Any]] = {}

    def once(self, name: Hashable, key: Hashable, make: Callable[[], _T]) -> _T:
        """What `make` gives; it is called again when another key was asked for in between."""
        held = self._made.get(name)
        if held is None or held[0] != key:
            held = self._made[name] = (key, make())
        made: _T = held[1]
        return made

    def forget(self) -> None:
        """Let go of everything."""
        self._made.clear()
