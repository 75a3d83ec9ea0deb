"""The base of every schema: frozen, strict, closed, finite.

It owns the pydantic settings every schema shares; it knows no field. `frozen` is shallow, so
schemas hold tuples, strings, bytes and numbers only; `model_copy(update=...)` and
`model_construct` skip validation and are banned by a test.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
)

from schemas.text import TEXT_MAX, in_words, printable

__all__ = [
    "INT64_MAX",
    "TEXT_MAX",
    "Count",
    "Digest",
    "Extended",
    "Fraction",
    "NonNegative",
    "Positive",
    "Signature",
    "Strict",
    "Text",
    "in_words",
    "printable",
]

# Integers travel as msgpack int64 and are stored in SQLite: both end at 2**63 - 1.
INT64_MAX = 2**63 - 1
Count = Annotated[int, Field(ge=0, le=INT64_MAX)]
Digest = Annotated[bytes, Field(min_length=32, max_length=32)]
Signature = Annotated[bytes, Field(min_length=64, max_length=64)]
Fraction = Annotated[float, Field(ge=0.0, le=1.0)]
Positive = Annotated[float, Field(gt=0.0, le=1e18)]
NonNegative = Annotated[float, Field(ge=0.0, le=1e18)]


def _is_printable(text: str) -> str:
    if printable(text) != text:
        raise ValueError("contains terminal control characters")
    return text


# Text that a peer may send; `in_words` makes it from any text.
Text = Annotated[str, Field(max_length=TEXT_MAX), AfterValidator(_is_printable)]


class Strict(BaseModel):
    """A frozen, strict model that refuses unknown fields and non-finite numbers."""

    model_config = ConfigDict(
        frozen=True,
        strict=True,
        extra="forbid",
        allow_inf_nan=False,
        hide_input_in_errors=True,
        ser_json_bytes="base64",
        val_json_bytes="base64",
    )


class Extended(Strict):
    """A schema with fields that came later than its first version.

    They are left out while they hold their default, so what an earlier version wrote has the same
    bytes and the same digest, and what is meant for an earlier version is understood there.
    """

    later: ClassVar[tuple[str, ...]] = ()

    @model_serializer(mode="wrap")
    def _without_defaults(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        plain: dict[str, Any] = handler(self)
        for name in self.later:
            if getattr(self, name) == type(self).model_fields[name].default:
                plain.pop(name, None)
        return plain
