"""Plain values as TOML text, in the form in which people write settings.

It owns the text; it reads no file and knows no setting. A library that keeps comments takes twenty
times as long, and a service writes the settings of every run.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

_BARE = re.compile(r"[A-Za-z0-9_-]+")


def toml_text(values: Mapping[str, Any]) -> str:
    """The text of a document: text, numbers, booleans, lists and mappings of these."""
    return "\n".join(_table(values, ())).lstrip("\n") + "\n"


def _table(values: Mapping[str, Any], place: tuple[str, ...]) -> Iterator[str]:
    """The lines of a table: its own keys first, then the tables in it."""
    for key, value in values.items():
        if not _is_table(value) and not _is_tables(value):
            yield f"{_key(key)} = {_inline(value)}"
    for key, value in values.items():
        inner = (*place, key)
        name = ".".join(map(_key, inner))
        if _is_table(value):
            yield f"\n[{name}]"
            yield from _table(value, inner)
        elif _is_tables(value):
            for each in value:
                yield f"\n[[{name}]]"
                yield from _table(each, inner)


def _is_table(value: Any) -> bool:
    return isinstance(value, Mapping)


def _is_tables(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(map(_is_table, value))


def _inline(value: Any) -> str:
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, list):
        return f"[{', '.join(map(_inline, value))}]"
    if isinstance(value, Mapping):
        pairs = (f"{_key(key)} = {_inline(each)}" for key, each in value.items())
        return "{" + ", ".join(pairs) + "}"
    raise TypeError(f"TOML has no {type(value).__name__}")


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else _quoted(name)


def _quoted(text: str) -> str:
    """A basic string; TOML escapes as JSON does, and the delete character as well."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
