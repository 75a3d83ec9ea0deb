"""Converts a role's state to plain values for a snapshot and back, by the types of its fields.

It owns that conversion; it knows no role. A field whose metadata says `fixed` is left out, because
it follows from what the role is made of. A value that does not fit its type is a ValueError, and
the snapshot is then ignored.
"""

from __future__ import annotations

import sys
import types
import typing
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Union, get_args, get_origin

from pydantic import BaseModel

from schemas.tensor import Tensor


def to_plain(value: Any) -> Any:
    """The state as plain values: dict, tuple, str, bytes, int, float, bool, None."""
    if is_dataclass(value):
        return {f.name: to_plain(getattr(value, f.name)) for f in fields(value) if not is_fixed(f)}
    if isinstance(value, BaseModel):
        return value.model_dump()
    if isinstance(value, _arrays()):
        return Tensor.of(value).model_dump()
    if isinstance(value, Mapping):
        return tuple((to_plain(key), to_plain(each)) for key, each in sorted(value.items()))
    if isinstance(value, frozenset):
        return tuple(sorted(value))
    return tuple(map(to_plain, value)) if isinstance(value, tuple) else value


def _arrays() -> tuple[type[Any], ...]:
    """The type of arrays; none in a process without numpy, such as the broker's."""
    numpy = sys.modules.get("numpy")
    return () if numpy is None else (numpy.ndarray,)


def fields_from_plain(state: type, plain: Any) -> dict[str, Any]:
    """The stored fields of a state, checked, as keyword arguments for its type."""
    wanted = {f.name for f in fields(state) if not is_fixed(f)}
    if not isinstance(plain, dict) or set(plain) != wanted:
        raise ValueError("the stored fields are not those of this state")
    hints = typing.get_type_hints(state)
    return {name: from_plain(hints[name], plain[name]) for name in wanted}


def is_fixed(f: Any) -> bool:
    """Whether a field follows from what the role is made of."""
    return bool(f.metadata.get("fixed", False))


def from_plain(hint: Any, plain: Any) -> Any:  # noqa: PLR0911 - one case each
    """The value of type `hint` that these plain values describe."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is typing.Annotated:
        return from_plain(arguments[0], plain)
    if origin in (Union, types.UnionType):
        return _optional_from_plain(arguments, plain)
    if origin in _arrays():
        return Tensor.model_validate(plain).array()
    if isinstance(hint, type) and issubclass(hint, BaseModel):
        return hint.model_validate(plain)
    if is_dataclass(hint) and isinstance(hint, type):
        return hint(**fields_from_plain(hint, plain))
    if origin in (tuple, frozenset) or (isinstance(origin, type) and issubclass(origin, Mapping)):
        return _many_from_plain(origin, arguments, plain)
    if not isinstance(hint, type) or type(plain) is not hint:
        raise ValueError("a stored value is not of its type")
    return plain


def _optional_from_plain(arguments: tuple[Any, ...], plain: Any) -> Any:
    if plain is None and type(None) in arguments:
        return None
    (inner,) = (each for each in arguments if each is not type(None))
    return from_plain(inner, plain)


def _many_from_plain(origin: Any, arguments: tuple[Any, ...], plain: Any) -> Any:
    if not isinstance(plain, tuple):
        raise ValueError("a stored collection is not one")
    if origin is frozenset:
        return frozenset(from_plain(arguments[0], each) for each in plain)
    if origin is not tuple:
        key, value = arguments
        return types.MappingProxyType({from_plain(key, k): from_plain(value, v) for k, v in plain})
    if arguments[1:] == (Ellipsis,):
        return tuple(from_plain(arguments[0], each) for each in plain)
    return tuple(from_plain(hint, each) for hint, each in zip(arguments, plain, strict=True))
