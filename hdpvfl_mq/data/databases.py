"""Rows from a database: one query, read once into an Arrow file that only its owner can read.

It owns the drivers and where a password may be stored; it knows no meaning of a column. Preparation
reads its source twice and a table may change in between, so a run keeps the rows of the first read.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from pyarrow import ipc

from hdpvfl_mq.errors import DataError, HdpvflError, NetworkError, SettingsError
from schemas.data import DataSettings

BATCH_ROWS = 2**16
_ODBC_BYTES = 2**26  # of a batch, which a driver fills for cells of their declared length
_ODBC_STATE = re.compile(r"^State: (\w{5})", re.MULTILINE)
_NO_DRIVER = ("01000", "IM002", "IM003")
# Also with a slash in the password, and under the names that drivers have for keys and tokens.
_PASSWORD = re.compile(r"://[^/]*:.+@|(password|passwd|pwd|secret|token)\s*=", re.IGNORECASE)
_KINDS = "postgresql://host/base, sqlite:FILE, duckdb:FILE, odbc:CONNECTION, env:NAME or file:PATH"


def spooled(settings: DataSettings, folder: Path) -> DataSettings:
    """The settings with the file that the query's rows are written to; a file stays as it is."""
    if settings.query is None:
        return settings
    file = str(spool(settings, folder))
    return DataSettings(**{**dict(settings), "file": file, "query": None, "source": None})


def spool(settings: DataSettings, folder: Path) -> Path:
    """The file with the query's rows; the query runs if the file does not exist yet."""
    query, source = settings.query, settings.source
    assert query is not None
    assert source is not None
    name = hashlib.sha256(f"{source}\n{query}".encode()).hexdigest()[:16]
    path = folder / f"{name}.arrow"
    if path.exists():
        return path
    address = _address(source)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    partial = path.with_suffix(".part")
    partial.unlink(missing_ok=True)
    with _opened(address, query) as reader, _private(partial) as file:
        rows = _write(reader, file)
    if rows == 0:
        partial.unlink()
        raise DataError("the query gives no row")
    partial.replace(path)
    return path


def _address(source: str) -> str:
    """The address in the settings, or in the environment variable or private file they name."""
    kind, _, rest = source.partition(":")
    if kind == "env":
        found = os.environ.get(rest)
        if found is None:
            raise SettingsError(f"data.source: the environment has no variable {rest}")
        return found.strip()
    if kind == "file":
        return _from_file(Path(rest))
    refuse_password(source)
    return source


def refuse_password(source: str) -> None:
    """SettingsError if settings hold a password; env: and file: only name where it is."""
    if not source.startswith(("env:", "file:")) and _PASSWORD.search(source):
        raise SettingsError("data.source: no password in settings; use env:NAME or file:PATH")


def _from_file(path: Path) -> str:
    try:
        mode, text = path.stat().st_mode, path.read_text()
    except OSError as error:
        raise SettingsError(f"data.source: {path}: {error.strerror}") from None
    if stat.S_IMODE(mode) & 0o077:
        raise SettingsError(f"data.source: others may read {path}; chmod 600 it")
    return text.strip()


@contextmanager
def _opened(address: str, query: str) -> Iterator[Any]:
    """A reader of record batches. Driver messages may quote cells, so only error kinds pass."""
    kind = address.partition(":")[0]
    connect = _DRIVERS.get(kind)
    if connect is None:
        raise SettingsError(f"data.source: give one of {_KINDS}")
    try:
        yield from connect(address, query)
    except (HdpvflError, ImportError):
        raise
    except Exception as error:  # noqa: BLE001  each driver has its own tree of errors
        raise _told(kind, error) from None


def _told(kind: str, error: Exception) -> HdpvflError:
    state = getattr(error, "sqlstate", None)
    if kind == "odbc":
        return _told_by_odbc(error)
    name = f"{type(error).__name__}{f', SQLSTATE {state}' if state else ''}"
    if kind == "postgresql" and not state and "connect" in str(error).lower():
        return NetworkError(f"the database cannot be reached ({name}); check data.source")
    return DataError(f"the database does not answer data.query: {name}")


def _told_by_odbc(error: Exception) -> HdpvflError:
    found = _ODBC_STATE.search(str(error))
    name = f"{type(error).__name__}{f', SQLSTATE {found[1]}' if found else ''}"
    if "SQLDriverConnect" not in str(error):
        return DataError(f"the database does not answer data.query: {name}")
    if found and found[1] in _NO_DRIVER:
        return SettingsError(
            f"data.source: no such ODBC driver or DSN ({name}); see odbcinst -q -d"
        )
    return NetworkError(f"the database cannot be reached ({name}); check data.source")


def _adbc(driver: str, option: Callable[[str], Mapping[str, Any]], before: tuple[str, ...]) -> Any:
    def connect(address: str, query: str) -> Iterator[Any]:
        dbapi = _module(f"{driver}.dbapi", "databases")
        with dbapi.connect(**option(address)) as connection, connection.cursor() as cursor:
            for statement in before:
                cursor.execute(statement)
            cursor.execute(query)
            yield cursor.fetch_record_batch()

    return connect


def _sqlite_option(address: str) -> Mapping[str, Any]:
    path = Path(address.removeprefix("sqlite:").removeprefix("//")).absolute()
    return {"uri": f"{path.as_uri()}?mode=ro"}


def _duckdb(address: str, query: str) -> Iterator[Any]:
    """A DuckDB file alone: it opens no other file and fetches nothing from the network."""
    path = Path(address.removeprefix("duckdb:").removeprefix("//"))
    options = {
        "enable_external_access": "false",
        "autoinstall_known_extensions": "false",
        "autoload_known_extensions": "false",
    }
    database = _module("duckdb", "databases").connect(str(path), read_only=True, config=options)
    try:
        relation = database.sql(query)
        if relation is None:
            raise DataError("data.query gives no table")
        yield relation.to_arrow_reader(BATCH_ROWS)
    finally:
        database.close()


def _odbc(address: str, query: str) -> Iterator[Any]:
    """Any driver; whatever the query changes is rolled back, because few drivers read only."""
    odbc = _module("arrow_odbc", "odbc")
    connection = odbc.connect(address.removeprefix("odbc:"), autocommit=False)
    try:
        reader = connection.read_arrow_batches(
            query=query, batch_size=BATCH_ROWS, max_bytes_per_batch=_ODBC_BYTES
        )
        if not reader.schema.names:
            raise DataError("data.query gives no table")
        yield reader
    finally:
        connection.rollback()


_POSTGRESQL = _adbc(
    "adbc_driver_postgresql",
    lambda address: {"uri": address},
    ("set default_transaction_read_only = on",),
)
_DRIVERS: dict[str, Callable[[str, str], Iterator[Any]]] = {
    "postgresql": _POSTGRESQL,
    "postgres": _POSTGRESQL,
    "sqlite": _adbc("adbc_driver_sqlite", _sqlite_option, ()),
    "duckdb": _duckdb,
    "odbc": _odbc,
}


def _module(name: str, extra: str) -> Any:
    try:
        return import_module(name)
    except ImportError:
        raise SettingsError(f"data.source: pip install 'hdpvfl-mq[{extra}]'") from None
    except OSError:  # arrow-odbc loads the system's library when it is imported
        raise SettingsError("data.source: this system has no ODBC: install unixODBC") from None


@contextmanager
def _private(path: Path) -> Iterator[Any]:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


def _write(reader: Any, file: Any) -> int:
    rows = 0
    with ipc.new_file(file, reader.schema) as sink:
        for batch in reader:
            sink.write_batch(batch)
            rows += batch.num_rows
    return rows
