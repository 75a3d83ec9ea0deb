"""Inspect nested values: a digest of their whole content, and the arrays in it; tests only."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
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


Put = Callable[[bytes], object]
_LEAVES = {type(None), bool, int, float, str, bytes}


def _parts(value: Any) -> list[bytes]:
    found: list[bytes] = []
    _add(value, found.append)
    return found


def _add(value: Any, put: Put) -> None:
    """Put all parts of a value; nested generators would be slower."""
    put(type(value).__name__.encode())
    if type(value) in _LEAVES or isinstance(value, bool | int | float | str | bytes | type):
        put(repr(value).encode())
    elif isinstance(value, np.ndarray):
        put(repr((value.dtype, value.shape)).encode())
        put(np.ascontiguousarray(value).tobytes())
    elif isinstance(value, memoryview):  # the data of a tensor, read from the journal's parts
        put(repr((value.format, value.shape)).encode())
        put(value.tobytes())
    elif isinstance(value, tuple | list):
        _add_row(value, put)
    elif isinstance(value, BaseModel):
        # Declared fields, as of a dataclass: a cached property follows from them.
        _add({name: getattr(value, name) for name in type(value).model_fields}, put)
    elif isinstance(value, Mapping):
        for key, each in sorted(value.items(), key=lambda item: repr(item[0])):
            _add(key, put)
            _add(each, put)
    elif isinstance(value, set | frozenset):
        for each in sorted(b"".join(_parts(each)) for each in value):
            put(each)
    elif is_dataclass(value):
        for field in fields(value):
            _add(getattr(value, field.name), put)
    else:
        _add_attributes(value, put)


def _add_row(value: Sequence[Any], put: Put) -> None:
    """Rows of plain values at once: states of entity resolution hold thousands of keys."""
    kinds = set(map(type, value))
    if kinds == {bytes}:
        put(repr([len(each) for each in value]).encode())
        put(b"".join(value))
    elif kinds <= _LEAVES:
        put(repr(list(value)).encode())
    elif kinds == {tuple}:
        put(repr([len(each) for each in value]).encode())
        _add_row(list(chain.from_iterable(value)), put)
    else:
        for each in value:
            _add(each, put)


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


def _add_attributes(value: Any, put: Put) -> None:
    """Of a plain object, its slots among them; functions and other opaque things are refused."""
    slots = (
        f"_{cls.__name__}{name}" if name.startswith("__") else name
        for cls in type(value).__mro__
        for name in getattr(cls, "__slots__", ())
    )
    held = {name: getattr(value, name) for name in slots} | getattr(value, "__dict__", {})
    if isinstance(value, FunctionType | MethodType | partial) or not held:
        raise TypeError(f"cannot look into a {type(value).__name__}")
    _add(held, put)
