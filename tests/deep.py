"""Inspect nested values: a digest of their whole content, and the arrays in it; tests only."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import partial
from itertools import chain
from types import FunctionType, MethodType
from typing import Any

import numpy as np
from pydantic import BaseModel


def deep_digest(value: Any) -> str:
    """Equal for equal contents; a type this does not know is a TypeError, never passed over."""
    digest = hashlib.sha256()
    for part in _parts(value):
        digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()


_LEAVES = {type(None), bool, int, float, str, bytes}


def _parts(value: Any) -> Iterator[bytes]:
    yield type(value).__name__.encode()
    if value is None or isinstance(value, bool | int | float | str | bytes | type):
        yield repr(value).encode()
    elif isinstance(value, np.ndarray):
        yield repr((value.dtype, value.shape)).encode()
        yield np.ascontiguousarray(value).tobytes()
    elif isinstance(value, Mapping):
        for key, each in sorted(value.items(), key=lambda item: repr(item[0])):
            yield from _parts(key)
            yield from _parts(each)
    elif isinstance(value, tuple | list):
        yield from _row(value)
    elif isinstance(value, set | frozenset):
        yield from sorted(b"".join(_parts(each)) for each in value)
    elif isinstance(value, BaseModel):
        # Declared fields, as of a dataclass: a cached property follows from them.
        yield from _parts({name: getattr(value, name) for name in type(value).model_fields})
    elif is_dataclass(value):
        for each in fields(value):
            yield from _parts(getattr(value, each.name))
    else:
        yield from _attributes(value)


def _row(value: Sequence[Any]) -> Iterator[bytes]:
    """Rows of plain values at once: states of entity resolution hold thousands of keys."""
    kinds = set(map(type, value))
    if kinds == {bytes}:
        yield repr([len(each) for each in value]).encode()
        yield b"".join(value)
    elif kinds <= _LEAVES:
        yield repr(list(value)).encode()
    elif kinds == {tuple}:
        yield repr([len(each) for each in value]).encode()
        yield from _row(list(chain.from_iterable(value)))
    else:
        for each in value:
            yield from _parts(each)


def arrays_in(value: Any) -> Iterator[np.ndarray]:
    """Every array in dataclasses, mappings and tuples."""
    if isinstance(value, np.ndarray):
        yield value
    elif isinstance(value, Mapping):
        yield from arrays_in(tuple(value.values()))
    elif isinstance(value, tuple):
        for each in value:
            yield from arrays_in(each)
    elif is_dataclass(value):
        for each in fields(value):
            yield from arrays_in(getattr(value, each.name))


def _attributes(value: Any) -> Iterator[bytes]:
    """Of a plain object, its slots among them; functions and other opaque things are refused."""
    slots = (
        f"_{cls.__name__}{name}" if name.startswith("__") else name
        for cls in type(value).__mro__
        for name in getattr(cls, "__slots__", ())
    )
    held = {name: getattr(value, name) for name in slots} | getattr(value, "__dict__", {})
    if isinstance(value, FunctionType | MethodType | partial) or not held:
        raise TypeError(f"cannot look into a {type(value).__name__}")
    yield from _parts(held)
