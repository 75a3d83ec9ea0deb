"""Identifiers as bytes.

It owns the one normal form of an id; it knows no table, matching or peer. Two parties find a common
id only if both write it the same way, so the parties compare a digest of their rules (`IdRules`)
before any work. Errors count columns and rows from 1, without the header, and never show a value.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Any
from unicodedata import normalize

import numpy as np
from numpy.typing import NDArray

from hdpvfl_mq.errors import DataError
from hdpvfl_mq.psi.normal_forms import EDITION, UnusableError, normal_form
from schemas.config import IdRules

IdColumn = Sequence[object] | NDArray[Any]

MAX_ID_BYTES = 1024
_MAX_INTEGER_BITS = 3400  # below 1,024 digits, and far below the interpreter's own limit
_INTEGER = re.compile(r"([+-]?)0*([0-9]+)", re.ASCII)


def rules_digest(rules: IdRules) -> bytes:
    """32 bytes that are equal exactly when the rules are."""
    named = (
        f"kind={rules.kind};columns={rules.columns};casefold={rules.casefold};strip=True;"
        f"duplicates={rules.duplicates};empties={rules.empties}"
    )
    if rules.forms:
        named += f";edition={EDITION}"
    return blake2b(named.encode(), digest_size=32, person=b"hdpvfl id prof 1").digest()


def canonical_column(
    column: IdColumn, rules: IdRules, *, number: int, first_row: int
) -> list[bytes]:
    """The normal forms of an id column's cells, b"" for an empty cell.

    `number` is the number of the column and `first_row` that of its first row, both from 1; a
    DataError names them. *Guarantee*: no value passes through a float.
    """
    if isinstance(column, np.ndarray):
        if column.dtype.kind in "iu" and rules.kind == "integer":
            return [b"%d" % value for value in column.tolist()]  # nothing to check in these
        column = column.tolist()
    canonical: Callable[[object, IdRules], bytes] = (
        _canonical_integer if rules.kind == "integer" else _canonical_text
    )
    form = rules.forms[number - 1] if rules.forms else "text"
    result: list[bytes] = []
    for row, value in enumerate(column, start=first_row):
        try:
            cell = b"" if _is_missing(value) else canonical(value, rules)
            if cell and form != "text":
                cell = normal_form(cell.decode(), form, rules).encode()
            result.append(cell)
            if len(result[-1]) > MAX_ID_BYTES:
                raise UnusableError(f"is longer than {MAX_ID_BYTES} bytes")
        except UnusableError as why:
            raise DataError(f"id column {number}, row {row}: the value {why}") from None
    return result


def joined(parts: Sequence[bytes]) -> bytes:
    """One id from the parts of several columns; empty if any part is empty."""
    if not all(parts):  # an id with a missing part identifies nobody
        return b""
    return b"".join([len(part).to_bytes(4, "big") + part for part in parts])


def _is_missing(value: object) -> bool:
    return value is None or (isinstance(value, float | np.floating) and math.isnan(value))


def _canonical_text(value: object, rules: IdRules) -> bytes:
    if not isinstance(value, str):
        raise UnusableError(f"is of type {type(value).__name__}, the rules say text")
    if value.isascii():  # normal already; most ids take this path
        text = value.lower() if rules.casefold else value
    elif rules.casefold:  # caseless matching of compatibility forms, Unicode definition D146
        folded = normalize("NFKC", normalize("NFD", value).casefold())
        text = normalize("NFKC", folded.casefold())
    else:
        text = normalize("NFKC", value)
    try:
        return text.strip().encode()
    except UnicodeEncodeError:
        raise UnusableError("is not valid Unicode text") from None


def _canonical_integer(value: object, rules: IdRules) -> bytes:
    if isinstance(value, str) and value.isascii() and value.isdigit() and value[0] != "0":
        return value.encode()  # normal already; most ids that were read as text take this path
    if isinstance(value, float | np.floating):
        raise UnusableError("is a float; read the column as integer or text")
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        if int(value).bit_length() > _MAX_INTEGER_BITS:
            raise UnusableError(f"is longer than {MAX_ID_BYTES} bytes")
        return b"%d" % int(value)
    if not isinstance(value, str):
        raise UnusableError(f"is of type {type(value).__name__}, the rules say integer")
    text = normalize("NFKC", value)
    text = text.strip()
    if not text:
        return b""
    match = _INTEGER.fullmatch(text)
    if match is None:
        raise UnusableError("is not a whole number")
    sign = "-" if match[1] == "-" and match[2] != "0" else ""
    return (sign + match[2]).encode()
