"""Identifiers as bytes. Owns the one normal form of an id; knows nothing of matching or peers.

Two parties find a common id only if both write it down alike, so the rules are a named profile
whose digest is compared before any work. Errors count columns and rows from 1, the header apart, as
all errors about data do, and never show a value.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Literal
from unicodedata import normalize

import numpy as np
from numpy.typing import NDArray

from hdpvfl_mq.errors import DataError

MAX_ID_BYTES = 1024
_MAX_INTEGER_BITS = 3400  # below 1,024 digits, and far below the interpreter's own limit
_ROWS_SHOWN = 5
_INTEGER = re.compile(r"([+-]?)0*([0-9]+)", re.ASCII)


@dataclass(frozen=True)
class IdProfile:
    """How ids are read; must be equal at all parties."""

    kind: Literal["text", "integer"] = "text"
    columns: int = 1
    casefold: bool = False
    strip: bool = True
    duplicates: Literal["error", "first"] = "error"
    empties: Literal["error", "drop"] = "error"

    def digest(self) -> bytes:
        """32 bytes that are equal exactly when the profiles are."""
        named = (
            f"kind={self.kind};columns={self.columns};casefold={self.casefold};strip={self.strip};"
            f"duplicates={self.duplicates};empties={self.empties}"
        )
        return blake2b(named.encode(), digest_size=32, person=b"hdpvfl id prof 1").digest()


@dataclass(frozen=True)
class NormalisedIds:
    """Distinct canonical ids and the row of the party's table each one came from."""

    ids: list[bytes]
    rows: NDArray[np.int64]
    dropped_empty: int
    dropped_duplicates: int


class _UnusableError(Exception):
    """Why one value cannot be an id; the caller adds column and row."""


def normalise(columns: Sequence[Sequence[object]], profile: IdProfile) -> NormalisedIds:
    """Canonical ids of a table's id columns, row by row.

    *Guarantee*: no value passes through a float; the same table and profile give the same bytes.
    """
    if len(columns) != profile.columns:
        raise DataError(f"{profile.columns} id columns are agreed, the table gives {len(columns)}")
    if len({len(column) for column in columns}) != 1:
        raise DataError("the id columns have different lengths")
    canonical = [
        _canonical_column(column, number, profile) for number, column in enumerate(columns, start=1)
    ]
    ids, rows, empty, repeated = _distinct(canonical)
    if empty and profile.empties == "error":
        raise DataError(f"empty ids in {_rows_text(empty)}: fill them in or set empties to 'drop'")
    if repeated and profile.duplicates == "error":
        raise DataError(
            f"repeated ids in {_rows_text(repeated)}: remove them or set duplicates='first'"
        )
    return NormalisedIds(ids, np.asarray(rows, dtype=np.int64), len(empty), len(repeated))


def _distinct(
    canonical: Sequence[list[bytes]],
) -> tuple[list[bytes], list[int], list[int], list[int]]:
    """First occurrences with their rows, then the rows of empty and of repeated ids."""
    seen: set[bytes] = set()
    ids: list[bytes] = []
    rows: list[int] = []
    empty: list[int] = []
    repeated: list[int] = []
    for row, parts in enumerate(zip(*canonical, strict=True)):
        if not all(parts):  # an id with a part missing names nobody
            empty.append(row)
            continue
        joined = parts[0] if len(parts) == 1 else b"".join(map(_prefixed, parts))
        if joined in seen:
            repeated.append(row)
            continue
        seen.add(joined)
        ids.append(joined)
        rows.append(row)
    return ids, rows, empty, repeated


def _canonical_column(column: Sequence[object], number: int, profile: IdProfile) -> list[bytes]:
    canonical: Callable[[object, IdProfile], bytes] = (
        _canonical_text if profile.kind == "text" else _canonical_integer
    )
    result: list[bytes] = []
    for row, value in enumerate(column):
        try:
            result.append(b"" if _is_missing(value) else canonical(value, profile))
            if len(result[-1]) > MAX_ID_BYTES:
                raise _UnusableError(f"is longer than {MAX_ID_BYTES} bytes")
        except _UnusableError as why:
            raise DataError(f"id column {number}, row {row + 1}: the value {why}") from None
    return result


def _is_missing(value: object) -> bool:
    return value is None or (isinstance(value, float | np.floating) and math.isnan(value))


def _canonical_text(value: object, profile: IdProfile) -> bytes:
    if not isinstance(value, str):
        raise _UnusableError(f"is of type {type(value).__name__}, the profile says text")
    if value.isascii():  # normal already; most ids take this path
        text = value.lower() if profile.casefold else value
    elif profile.casefold:  # caseless matching of compatibility forms, Unicode definition D146
        folded = normalize("NFKC", normalize("NFD", value).casefold())
        text = normalize("NFKC", folded.casefold())
    else:
        text = normalize("NFKC", value)
    try:
        return (text.strip() if profile.strip else text).encode()
    except UnicodeEncodeError:
        raise _UnusableError("is not valid Unicode text") from None


def _canonical_integer(value: object, profile: IdProfile) -> bytes:
    if isinstance(value, float | np.floating):
        raise _UnusableError("is a float; read the column as integer or text")
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        if int(value).bit_length() > _MAX_INTEGER_BITS:
            raise _UnusableError(f"is longer than {MAX_ID_BYTES} bytes")
        return b"%d" % int(value)
    if not isinstance(value, str):
        raise _UnusableError(f"is of type {type(value).__name__}, the profile says integer")
    text = normalize("NFKC", value)
    text = text.strip() if profile.strip else text
    if not text:
        return b""
    match = _INTEGER.fullmatch(text)
    if match is None:
        raise _UnusableError("is not a whole number")
    sign = "-" if match[1] == "-" and match[2] != "0" else ""
    return (sign + match[2]).encode()


def _prefixed(part: bytes) -> bytes:
    return len(part).to_bytes(4, "big") + part


def _rows_text(rows: Sequence[int]) -> str:
    shown = ", ".join(str(row + 1) for row in rows[:_ROWS_SHOWN])
    more = f" and {len(rows) - _ROWS_SHOWN} more" if len(rows) > _ROWS_SHOWN else ""
    return f"rows {shown}{more}"
