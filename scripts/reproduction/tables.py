"""Rows of results: CSV files in and out, means over splits.

It owns the file format; it knows no question.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

Row = Mapping[str, Any]
Tables = dict[str, list[dict[str, Any]]]  # the rows of each question


def write(path: Path, rows: Sequence[Row]) -> None:
    """Write all rows, with the union of their columns."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, names, restval="")
        writer.writeheader()
        writer.writerows({name: _short(value) for name, value in row.items()} for row in rows)


def read(path: Path) -> list[dict[str, Any]]:
    """Read rows, with numeric cells as numbers; empty if there is no file."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return [{k: _number(v) for k, v in row.items()} for row in csv.DictReader(file)]


def _short(value: Any) -> Any:
    return f"{value:.5g}" if isinstance(value, float) else value


def _number(cell: str) -> Any:
    try:
        return float(cell)
    except ValueError:
        return cell


def chosen(rows: Iterable[Row], /, **wanted: Any) -> list[Row]:
    """Rows whose columns have these values; a collection means any of them."""

    def fits(row: Row, name: str, value: Any) -> bool:
        if isinstance(value, range | set | tuple | list):
            return row.get(name) in value
        return bool(row.get(name) == value)

    return [row for row in rows if all(fits(row, n, v) for n, v in wanted.items())]


def mean(rows: Sequence[Row], name: str) -> float:
    """The mean of a column; NaN without rows."""
    return float(np.mean([row[name] for row in rows])) if rows else float("nan")


def spread(rows: Sequence[Row], name: str) -> float:
    """The standard deviation of a column over its rows."""
    return float(np.std([row[name] for row in rows])) if rows else float("nan")


def values(rows: Iterable[Row], name: str) -> list[Any]:
    """The distinct values of a column, sorted."""
    return sorted({row[name] for row in rows if row.get(name) != ""})


def markdown(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A Markdown table."""
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    lines += ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]
    return "\n".join(lines)
