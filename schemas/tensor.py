"""Arrays as (dtype, shape, bytes): the only conversion between numpy and the wire.

It owns the dtype whitelist and the exact size checks; it does not know what the numbers mean.
"""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, InstanceOf, field_serializer, model_validator

from schemas.base import Strict

if TYPE_CHECKING:  # the broker handles tensors as bytes and never imports numpy
    import numpy as np
    from numpy.typing import NDArray

# Little-endian by name, so that the same bytes mean the same numbers on every host.
Dtype = Literal["|i1", "<i2", "<i4", "<i8", "|u1", "<f8"]
_ITEM_BYTES = {"|i1": 1, "<i2": 2, "<i4": 4, "<i8": 8, "|u1": 1, "<f8": 8}
MAX_TENSOR_BYTES = 256 * 2**20
MAX_BUFFER_BYTES = 2**40
BUFFER_ABOVE = 16 * 2**20  # a larger array is not copied: its tensor is a view of it
CHUNK = 2**20
_Extent = Annotated[int, Field(ge=0, le=2**40)]


def _is_bounded(data: memoryview) -> memoryview:
    if data.nbytes > MAX_BUFFER_BYTES or data.format != "B" or not data.readonly:
        raise ValueError("a buffer is read-only, of bytes, and at most 2^40 of them")
    return data


class Tensor(Strict):
    """One array with a declared type and shape and exactly the bytes they need.

    A large array is a read-only buffer, which may be mapped from a file.
    """

    dtype: Dtype
    shape: Annotated[tuple[_Extent, ...], Field(min_length=1, max_length=2)]
    data: (
        Annotated[bytes, Field(max_length=MAX_TENSOR_BYTES)]
        | Annotated[InstanceOf[memoryview], AfterValidator(_is_bounded)]
    ) = Field(repr=False)

    @model_validator(mode="after")
    def _exact(self) -> Self:
        # math.prod, because np.prod wraps around at 2**64.
        if math.prod(self.shape) * _ITEM_BYTES[self.dtype] != len(self.data):
            raise ValueError("tensor bytes do not fit its dtype and shape")
        if self.dtype == "<f8":
            import numpy as np  # noqa: PLC0415 - the broker never gets here

            if not np.isfinite(self.array()).all():
                raise ValueError("tensor holds a non-finite number")
        return self

    @field_serializer("data", when_used="json")
    def _as_bytes(self, data: bytes | memoryview) -> bytes:
        return bytes(data)

    @property
    def digest(self) -> bytes:
        """SHA-256 of the bytes; several accounts of a release name it."""
        return self._digest

    @cached_property  # with this name it is in no `dict(tensor)`
    def _digest(self) -> bytes:
        return hashlib.sha256(self.data).digest()

    def array(self) -> NDArray[Any]:
        """A read-only view of the numbers."""
        import numpy as np  # noqa: PLC0415 - the broker never gets here

        return np.frombuffer(self.data, dtype=self.dtype).reshape(self.shape)

    @classmethod
    def of(cls, values: NDArray[Any]) -> Tensor:
        """A tensor with the array's own dtype, which must be on the whitelist."""
        import numpy as np  # noqa: PLC0415 - the broker never gets here

        little = np.ascontiguousarray(values, dtype=values.dtype.newbyteorder("<"))
        is_large = little.nbytes > BUFFER_ABOVE
        data = little.data.cast("B").toreadonly() if is_large else little.tobytes()
        return cls.model_validate({"dtype": little.dtype.str, "shape": little.shape, "data": data})

    @classmethod
    def of_counts(cls, counts: Sequence[int]) -> Tensor:
        """A tensor of 64-bit integers, made without numpy."""
        data = struct.pack(f"<{len(counts)}q", *counts)
        return cls(dtype="<i8", shape=(len(counts),), data=data)

    def counts(self) -> tuple[int, ...]:
        """The numbers of a tensor of 64-bit integers, read without numpy."""
        if self.dtype != "<i8":
            raise ValueError("counts are 64-bit integers")
        return struct.unpack(f"<{len(self.data) // 8}q", self.data)

    @classmethod
    def smallest(cls, integers: NDArray[np.int64], allocate: Any = None) -> Tensor:
        """A tensor of integers in the smallest signed type that holds them.

        `allocate`, by default np.empty, makes the array of that type; it is filled a chunk at a
        time.
        """
        import numpy as np  # noqa: PLC0415 - the broker never gets here

        low, high = (int(integers.min()), int(integers.max())) if integers.size else (0, 0)
        for bits, dtype in ((7, np.int8), (15, np.int16), (31, np.int32)):
            if -(1 << bits) <= low and high < 1 << bits:
                narrow = (allocate or np.empty)(integers.shape, dtype)
                for start in range(0, len(integers), CHUNK):
                    narrow[start : start + CHUNK] = integers[start : start + CHUNK]
                return cls.of(narrow)
        return cls.of(integers)
