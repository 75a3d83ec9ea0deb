"""CSV as a stream of Arrow batches, stricter than Arrow's own reader.

It owns the dialect and the checks that Arrow lacks: a column named twice, an unclosed quote, text
after a closing quote, a NUL byte. It knows no settings and no meaning of a column.

All cells are read as text first, one row after the other, so that the reader of the column can name
the row. csv_pieces.py is faster, and leaves to this module what it cannot cut or convert.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import IO, Any

import pyarrow as pa
from pyarrow import csv as arrow_csv

from hdpvfl_mq.data import arrow_functions as functions
from hdpvfl_mq.data.columns import NO_NUMBER, parsed
from hdpvfl_mq.errors import DataError, SettingsError

BLOCK_BYTES = 2**20
_CELL_BYTES = 64  # a block has room for a row of cells this long
_HEADER_BYTES = 2**26
NOT_UTF8 = "the file is not UTF-8: set data.encoding, such as 'latin-1'"
_SEPARATORS = (";", "\t", "|", ",")

Open = Callable[[], IO[bytes]]  # the file's bytes from the beginning, decompressed


@dataclass(frozen=True)
class Dialect:
    """How a CSV file is written."""

    separator: str = ","
    decimal: str = "."
    encoding: str = "utf-8"


PLAIN = Dialect()


def read_names(open_file: Open, dialect: Dialect) -> tuple[str, ...]:
    """The header as written."""
    with open_file() as raw:
        text = _text(raw, dialect)
        try:
            names = next(filter(None, _rows(text, dialect)), None)
        except UnicodeDecodeError:
            raise DataError(NOT_UTF8) from None
        except csv.Error:
            raise DataError("the header cannot be read: is a quote left open?") from None
    if names is None:
        raise DataError("the file is empty")
    return tuple(names)


def batches(
    open_file: Open, dialect: Dialect, columns: Sequence[str], *, numeric: Collection[str]
) -> Iterator[Any]:
    """Record batches of these columns, named as in the header; `numeric` ones as float64."""
    for batch in _read(open_file, dialect, columns):
        yield _with_numbers(batch, numeric, dialect)


def _with_numbers(batch: Any, numeric: Collection[str], dialect: Dialect) -> Any:
    """Parse numbers that Arrow does not accept but Python does; other columns stay text."""
    for place, name in enumerate(batch.schema.names):
        if name not in numeric:
            continue
        column = functions.replaced(batch.column(place), dialect.decimal, ".")
        values, bad = parsed(column)
        batch = batch.set_column(place, name, column if bad.any() else pa.array(values))
    return batch


def hint(names: Sequence[str], dialect: Dialect) -> str:
    """What may be wrong with a header of one column."""
    if len(names) != 1:
        return ""
    for separator in _SEPARATORS:
        if separator != dialect.separator and separator in names[0]:
            return f"; the separator looks like {separator!r}: set data.separator"
    return ""


def _read(open_file: Open, dialect: Dialect, columns: Sequence[str]) -> Iterator[Any]:
    ragged: list[Any] = []

    def refuse_row(row: Any) -> str:
        ragged.append(row)
        return "error"

    with open_file() as raw:
        checked = _Checked(raw, dialect)
        try:
            reader = arrow_csv.open_csv(
                pa.PythonFile(checked, mode="r"),
                # Arrow numbers rows only with one thread.
                read_options=arrow_csv.ReadOptions(
                    use_threads=False, block_size=block_bytes(len(columns))
                ),
                parse_options=arrow_csv.ParseOptions(
                    delimiter=dialect.separator,
                    newlines_in_values=True,
                    invalid_row_handler=refuse_row,
                ),
                convert_options=conversion(columns, (), dialect),
            )
            with reader:
                yield from reader
        except pa.ArrowInvalid as error:
            _explain(error, ragged)
            raise
        finally:
            suspect = checked.suspect
    if suspect:
        _check_quotes(open_file, dialect)


def conversion(columns: Sequence[str], numeric: Collection[str], dialect: Dialect) -> Any:
    """How Arrow reads these columns: text, or float64 if they are `numeric`."""
    return arrow_csv.ConvertOptions(
        column_types={
            name: pa.float64() if name in numeric else pa.large_string() for name in columns
        },
        include_columns=list(columns),
        null_values=list(NO_NUMBER),
        strings_can_be_null=False,
        decimal_point=dialect.decimal,
    )


def block_bytes(columns: int) -> int:
    """How much Arrow parses at a time: at least a row of long cells."""
    return max(BLOCK_BYTES, _CELL_BYTES * columns)


def _explain(error: pa.ArrowInvalid, ragged: list[Any]) -> None:
    """Explain an Arrow error without its text, which quotes the row."""
    if ragged and ragged[0].number is not None:
        row = ragged[0]
        raise DataError(
            f"row {row.number - 1} has {row.actual_columns} cells, "
            f"the header has {row.expected_columns}"
        ) from None
    if "UTF8" in str(error):
        raise DataError(NOT_UTF8) from None
    if "straddling" in str(error):
        raise DataError("a row does not end; is a quote left open?") from None
    if "Empty CSV" in str(error):
        raise DataError("the file has no row") from None


def _check_quotes(open_file: Open, dialect: Dialect) -> None:
    """Read the file with strict rules: Arrow accepts a quote in a wrong place."""
    row = 0
    with open_file() as raw:
        text = _text(raw, dialect)
        try:
            for _ in filter(None, _rows(text, dialect)):
                row += 1
        except csv.Error:
            raise DataError(f"row {row}: a quote is not closed or in the wrong place") from None


def _text(raw: IO[bytes], dialect: Dialect) -> io.TextIOWrapper:
    checked = io.BufferedReader(_Checked(raw, dialect))
    return io.TextIOWrapper(checked, encoding="utf-8-sig", newline="")


def _rows(text: IO[str], dialect: Dialect) -> Iterator[list[str]]:
    csv.field_size_limit(_HEADER_BYTES)
    return csv.reader(text, delimiter=dialect.separator, strict=True)


class _Checked(io.RawIOBase):
    """A UTF-8 stream that checks its bytes while they are read.

    `suspect` is true if quotes may break the rules: an odd number of them, or one with a letter on
    both sides.
    """

    def __init__(self, raw: IO[bytes], dialect: Dialect) -> None:
        self._raw = as_utf8(raw, dialect.encoding)
        self._last = b"\n"
        self._odd = self._astray = False
        edge = re.escape(dialect.separator.encode()) + rb'"\r\n'
        # The pattern starts with the quote, so that the search jumps from quote to quote.
        self._stray = re.compile(rb'"(?=[^%s])(?<=[^%s]")' % (edge, edge))

    @property
    def suspect(self) -> bool:
        return self._odd or self._astray

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def read(self, size: int = -1) -> bytes:
        """As many bytes as asked for, unless the file ends."""
        try:
            data: bytes = self._raw.read(size if size >= 0 else None)
        except UnicodeError:
            raise DataError("the file is not in the encoding that data.encoding names") from None
        self._look_at(data)
        return data

    def _look_at(self, data: bytes) -> None:
        if b"\0" in data:
            raise DataError(
                "the file has a NUL byte: it is not text, or it is UTF-16 (data.encoding)"
            )
        quotes = data.count(b'"')
        if quotes or self._last.endswith(b'"'):
            self._odd ^= bool(quotes % 2)
            self._astray = self._astray or bool(self._stray.search(self._last + data))
        self._last = data[-2:] or self._last


def as_utf8(raw: Any, encoding: str) -> Any:
    """The same text as UTF-8."""
    try:
        "".encode(encoding)  # refuses codecs that do not encode text
        return raw if is_utf8(encoding) else pa.transcoding_input_stream(raw, encoding, "utf-8")
    except LookupError:
        raise SettingsError(f"data.encoding: {encoding!r} is not a text encoding") from None


def is_utf8(encoding: str) -> bool:
    """Whether an encoding is UTF-8; LookupError if there is no such encoding."""
    return codecs.lookup(encoding).name in ("utf-8", "utf-8-sig")


def of_suffix(name: str, dialect: Dialect) -> Dialect:
    """A .tsv file is separated by tabs, unless its settings say otherwise."""
    is_tabbed = ".tsv" in name.lower() and dialect.separator == Dialect.separator
    return replace(dialect, separator="\t") if is_tabbed else dialect
