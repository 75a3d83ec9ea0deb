"""Arrays as (dtype, shape, bytes): the only conversion between numpy and the wire.

It owns the dtype whitelist and the exact size checks; it knows nothing of what the numbers mean.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from schemas.base import Closed

# Little-endian by name, so that the same bytes mean the same numbers on every host.
Dtype = Literal["|i1", "<i2", "<i4", "<i8", "|u1", "<f8"]
MAX_TENSOR_BYTES = 256 * 2**20
_Extent = Annotated[int, Field(ge=0, le=2**40)]


class Tensor(Closed):
    """One array with a declared type and shape and exactly the bytes they need."""

    dtype: Dtype
    shape: Annotated[tuple[_Extent, ...], Field(min_length=1, max_length=2)]
    data: Annotated[bytes, Field(max_length=MAX_TENSOR_BYTES, repr=False)]

    @model_validator(mode="after")
    def _exact(self) -> Self:
        # math.prod, because np.prod wraps around at 2**64.
        if math.prod(self.shape) * np.dtype(self.dtype).itemsize != len(self.data):
            raise ValueError("tensor bytes do not fit its dtype and shape")
        if self.dtype == "<f8" and not np.isfinite(self.array()).all():
            raise ValueError("tensor holds a non-finite number")
        return self

    def array(self) -> NDArray[Any]:
        """Read-only view of the numbers."""
        return np.frombuffer(self.data, dtype=self.dtype).reshape(self.shape)

    @classmethod
    def of(cls, values: NDArray[Any]) -> Tensor:
        """Carry an array as it is; its dtype must be on the whitelist."""
        little = np.ascontiguousarray(values, dtype=values.dtype.newbyteorder("<"))
        return cls.model_validate(
            {"dtype": little.dtype.str, "shape": little.shape, "data": little.tobytes()}
        )

    @classmethod
    def smallest(cls, integers: NDArray[np.int64]) -> Tensor:
        """Carry integers in the smallest signed type that holds them."""
        low, high = (int(integers.min()), int(integers.max())) if integers.size else (0, 0)
        for dtype in (np.int8, np.int16, np.int32):
            bounds = np.iinfo(dtype)
            if bounds.min <= low and high <= bounds.max:
                return cls.of(integers.astype(dtype))
        return cls.of(integers)
