"""Data sets from their public source: download, check, parse.

It owns the download limits and the three public layouts; it knows nothing of training. The
checksum covers the parsed contents as canonical text, because mirrors differ in quoting and line
ends.
"""

from __future__ import annotations

import csv
import hashlib
import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from hdpvfl_mq.data.tables import Table
from hdpvfl_mq.errors import DataError, NetworkError

LIMIT_BYTES = 64 * 2**20
TIMEOUT_S = 30.0
REMEDY = "set HDPVFL_DATA to a folder that holds the data set's _active and _passive files"

Pair = tuple[Table, Table]
Lines = list[list[str]]

ADULT_COLUMNS = [
    "age",
    "workclass",
    "fnlwgt",
    "education",
    "education_num",
    "marital_status",
    "occupation",
    "relationship",
    "race",
    "sex",
    "capital_gain",
    "capital_loss",
    "hours_per_week",
    "native_country",
    "y",
]
ADULT_ACTIVE = [
    "age",
    "fnlwgt",
    "education_num",
    "capital_gain",
    "capital_loss",
    "hours_per_week",
]  # the numeric ones
CREDIT_LABEL = "default.payment.next.month"
CREDIT_ACTIVE = ["pay_6", *(f"{kind}_amt{i}" for kind in ("bill", "pay") for i in range(1, 7))]


@dataclass(frozen=True)
class PublicSource:
    """Where a data set is published, how it is split in two, and the sha256 of its contents."""

    urls: tuple[str, ...]
    cut: Callable[[list[Lines]], Pair]
    sha256: str


def fetch_pair(name: str, source: PublicSource, cache: Path | None = None) -> Pair:
    """Download (or read from the cache), split into two tables, and check the contents."""
    texts = [_cached(name, index, url, cache) for index, url in enumerate(source.urls)]
    try:
        active, passive = source.cut([list(csv.reader(text.splitlines())) for text in texts])
        digest = content_digest(active, passive)
    except (DataError, csv.Error, ValueError, IndexError):
        digest = "unreadable"
    if digest != source.sha256:
        raise NetworkError(f"{name}: {source.urls[0]} is not the known data set; {REMEDY}")
    if cache is not None:
        for index, text in enumerate(texts):
            _store(_cache_file(name, index, cache), text)
    return active, passive


def download(url: str) -> bytes:
    """The bytes at a web address, within the limits."""
    if not url.startswith(("https://", "http://")):
        raise NetworkError(f"{url} is not a web address")
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT_S) as reply:  # noqa: S310 - scheme checked
            body: bytes = reply.read(LIMIT_BYTES + 1)
    except (urllib.error.URLError, http.client.HTTPException, OSError) as error:
        raise NetworkError(f"{url} cannot be reached ({error}); {REMEDY}") from error
    if len(body) > LIMIT_BYTES:
        raise NetworkError(f"{url} sends more than {LIMIT_BYTES} bytes; {REMEDY}")
    return body


def content_digest(active: Table, passive: Table) -> str:
    """sha256 of both tables' contents, independent of row order and number spelling."""
    whole = hashlib.sha256()
    for table in (active, passive):
        columns = [table[name].tolist() for name in table.names]
        rows = sorted([_canonical(cell) for cell in row] for row in zip(*columns, strict=True))
        whole.update(json.dumps([table.names, rows]).encode())
    return whole.hexdigest()


def cut_adult(files: list[Lines]) -> Pair:
    """adult.data: no header, a space after each comma; the id is the row number from 0."""
    lines = [[cell.strip() for cell in line] for line in files[0] if line]
    columns = dict(zip(ADULT_COLUMNS, map(list, zip(*lines, strict=True)), strict=True))
    columns["id"] = [str(row) for row in range(len(lines))]
    columns["y"] = ["1" if cell == ">50K" else "0" for cell in columns["y"]]
    rest = [name for name in ADULT_COLUMNS if name not in (*ADULT_ACTIVE, "y")]
    whole = Table.of(columns)
    return whole.select(["id", "y", *ADULT_ACTIVE]), whole.select(["id", *rest])


def cut_credit(files: list[Lines]) -> Pair:
    """UCI_Credit_Card.csv: ID, features in capitals, label last."""
    whole = _with_header(files[0], {CREDIT_LABEL: "y"})
    rest = [name for name in whole.names if name not in (*CREDIT_ACTIVE, "id", "y")]
    return whole.select(["id", "y", *CREDIT_ACTIVE]), whole.select(["id", *rest])


def cut_dvisits(files: list[Lines]) -> Pair:
    """Two files that are already split; the guest's label is doctorco."""
    return _with_header(files[0], {"doctorco": "y"}), _with_header(files[1], {})


def _with_header(lines: Lines, renamed: dict[str, str]) -> Table:
    names = [renamed.get(name.strip().lower(), name.strip().lower()) for name in lines[0]]
    return Table.of(
        dict(zip(names, map(list, zip(*filter(None, lines[1:]), strict=True)), strict=True))
    )


def _canonical(cell: object) -> str:
    text = str(cell).strip()
    try:
        return repr(float(text))
    except ValueError:
        return text


def _cached(name: str, index: int, url: str, cache: Path | None) -> str:
    if cache is not None and (file := _cache_file(name, index, cache)).exists():
        return file.read_text(encoding="utf-8")
    return download(url).decode("utf-8", errors="replace")


def _cache_file(name: str, index: int, cache: Path) -> Path:
    return cache / f"{name}-{index}.csv"


def _store(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_suffix(".part")
    partial.write_text(text, encoding="utf-8")
    partial.replace(file)
