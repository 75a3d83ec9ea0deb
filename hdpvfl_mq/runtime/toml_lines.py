"""The line of a TOML file that holds a setting.

It owns the search; it reads ordinary files, with one key per line under table headers. A setting
in an inline table or an array gets the line of the key that holds it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_HEADER = re.compile(r"^\s*(\[\[?)\s*([^\]]+?)\s*\]")
_KEY = re.compile(r"^\s*([A-Za-z0-9_.\"'-]+)\s*=")
Place = tuple[str | int, ...]


def line_of(text: str, place: Sequence[str | int]) -> int:
    """The line of a setting, or of the nearest enclosing key in the file; 1 if there is none."""
    lines = _lines(text)
    wanted = tuple(place)
    while wanted:
        if wanted in lines:
            return lines[wanted]
        wanted = wanted[:-1]
    return 1


def _lines(text: str) -> dict[Place, int]:
    found: dict[Place, int] = {}
    tables: dict[Place, int] = {}  # the number of tables so far in each array of tables
    table: Place = ()
    for number, line in enumerate(text.splitlines(), start=1):
        if header := _HEADER.match(line):
            named = _parts(header[2])
            if header[1] == "[[":
                tables[named] = tables.get(named, -1) + 1
                found.setdefault(named, number)
            table = _within(named, tables)
            found.setdefault(table, number)
        elif key := _KEY.match(line):
            found.setdefault((*table, *_parts(key[1])), number)
    return found


def _within(named: Place, tables: dict[Place, int]) -> Place:
    """The place of a header, with the index in every array of tables that contains it."""
    place: Place = ()
    for end in range(1, len(named) + 1):
        place = (*place, named[end - 1])
        if named[:end] in tables:
            place = (*place, tables[named[:end]])
    return place


def _parts(dotted: str) -> Place:
    return tuple(part.strip().strip("\"'") for part in dotted.split("."))
