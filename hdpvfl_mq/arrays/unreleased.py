"""Vectors computed from private rows that have not been through the mechanism.

It owns the wrapper that keeps them from leaving by accident; it knows nothing of noise. An
`Unreleased` cannot be printed, formatted, pickled, copied into JSON or msgpack, hashed, iterated or
turned into an array by numpy. `expose()` is the one way to the numbers; a test reads the syntax
tree and lists the modules that may call it.
"""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

FloatVector = NDArray[np.float64]


def _refuse(*_: Any, **__: Any) -> NoReturn:
    raise TypeError("an un-noised vector cannot leave the party; pass it to the mechanism")


class Unreleased:
    """One un-noised float64 vector, opaque to everything but local arithmetic."""

    __slots__ = ("__values",)

    def __init__(self, values: FloatVector) -> None:
        self.__values = np.asarray(values, dtype=np.float64)

    def expose(self) -> FloatVector:
        """Give the numbers to local arithmetic or to the mechanism."""
        return self.__values

    def __len__(self) -> int:
        return len(self.__values)

    def __repr__(self) -> str:
        return f"<Unreleased of {len(self.__values)} values>"

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return repr(self)

    __reduce__ = __reduce_ex__ = __getstate__ = __iter__ = __array__ = __getitem__ = _refuse
    __copy__ = __deepcopy__ = __bytes__ = __float__ = __hash__ = __buffer__ = _refuse
