"""Rows from PostgreSQL, SQLite and DuckDB: asked once, kept privately, no password in settings."""

from __future__ import annotations

import sqlite3
import stat
import tempfile
import time
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError

from hdpvfl_mq.data.databases import spool
from hdpvfl_mq.data.preprocess import PreparedData, prepare
from hdpvfl_mq.data.readers import TableFile
from hdpvfl_mq.data.tables import Table
from hdpvfl_mq.errors import DataError, HdpvflError, NetworkError, SettingsError
from schemas.data import DataSettings

pytestmark = pytest.mark.seconds

PEOPLE = [("k1", 1.5, 3), ("k2", -2.0, 4), ("k3", 0.25, 9)]
QUERY = "select id, a, b from people order by id"
EXPECTED = Table.of({"id": ["k1", "k2", "k3"], "a": [1.5, -2.0, 0.25], "b": [3, 4, 9]})


@pytest.fixture(scope="module")
def postgresql() -> Iterator[str]:
    """A server of its own; skipped where none runs.

    Its folder is not pytest's, which only root can enter: as root, the server has another user.
    """
    pgserver = pytest.importorskip("pgserver", reason="the wheel pgserver is not installed")
    try:
        server = pgserver.get_server(Path(tempfile.mkdtemp()), cleanup_mode="delete")
    except Exception as error:  # noqa: BLE001  ten seconds pass, or a version refuses root
        pytest.skip(f"no PostgreSQL server starts here: {type(error).__name__}")
    server.psql("create table people (id text, a numeric, b int, born date, secret text);")
    rows = ", ".join(f"('{i}', {a}, {b}, '2000-01-0{b % 9 + 1}', 's3cret')" for i, a, b in PEOPLE)
    server.psql(f"insert into people values {rows};")
    yield server.get_uri()
    server.cleanup()


def sqlite(path: Path) -> str:
    with sqlite3.connect(path) as database:
        database.execute("create table people (id text, a real, b integer)")
        database.executemany("insert into people values (?, ?, ?)", PEOPLE)
    database.close()
    return f"sqlite:{path}"


def duck(path: Path) -> str:
    import duckdb  # noqa: PLC0415 - at its end it prints what it leaked, in the main process too

    with duckdb.connect(str(path)) as database:
        database.execute("create table people (id text, a double, b integer)")
        database.executemany("insert into people values (?, ?, ?)", PEOPLE)
    return f"duckdb:{path}"


def odbc(path: Path) -> str:
    """The SQLite file through its ODBC driver; skipped where the library or the driver is not."""
    try:
        import_module("arrow_odbc")
    except (ImportError, OSError) as missing:
        pytest.skip(f"needs arrow-odbc and unixODBC: {type(missing).__name__}")
    drivers = sorted(Path("/usr/lib").glob("*/odbc/libsqlite3odbc.so"))
    if not drivers:
        pytest.skip("no ODBC driver for SQLite: apt-get install libsqliteodbc")
    sqlite(path)
    return f"odbc:Driver={drivers[0]};Database={path}"


def asked(folder: Path, source: str, query: str = QUERY) -> PreparedData:
    settings = DataSettings(query=query, source=source)
    return prepare(TableFile(spool(settings, folder)), settings, role="passive")


@pytest.fixture(params=["postgresql", "sqlite", "duckdb", "odbc"])
def source(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgresql":
        return request.getfixturevalue("postgresql")
    made = {"sqlite": sqlite, "duckdb": duck, "odbc": odbc}[request.param]
    return made(tmp_path / "people.db")


def test_a_query_gives_the_rows_a_file_would(tmp_path: Path, source: str) -> None:
    found = asked(tmp_path / "spool", source)
    assert found.fingerprint == prepare(EXPECTED, DataSettings(), role="passive").fingerprint


def test_rows_are_read_once_into_a_file_of_the_owner(tmp_path: Path, source: str) -> None:
    settings = DataSettings(query=QUERY, source=source)
    path = spool(settings, tmp_path / "spool")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    before = path.stat().st_mtime_ns
    assert spool(settings, tmp_path / "spool") == path
    assert path.stat().st_mtime_ns == before
    assert [each.name for each in path.parent.iterdir()] == [path.name]
    other = DataSettings(query=QUERY + " ", source=source)
    assert spool(other, tmp_path / "spool") != path


BAD_QUERIES = {
    "unknown table": "select * from nobody",
    "no statement": "selekt 1",
    "no row": "select * from people where b > 100",
    "a change": "delete from people",
    "a column twice": "select id, a, a from people",
}


@pytest.mark.parametrize("kind", BAD_QUERIES)
def test_a_query_that_fails_says_so_and_leaves_no_file(tmp_path, source: str, kind: str) -> None:
    with pytest.raises(HdpvflError) as caught:
        asked(tmp_path / "spool", source, BAD_QUERIES[kind])
    assert isinstance(caught.value, DataError)
    assert "s3cret" not in str(caught.value)
    if kind != "a column twice":
        assert not list((tmp_path / "spool").glob("*.arrow"))
    assert asked(tmp_path / "spool", source).rows == 3  # and nothing was deleted


def test_odbc_says_what_is_missing_and_rolls_changes_back(tmp_path: Path) -> None:
    source = odbc(tmp_path / "people.db")
    with pytest.raises(SettingsError, match=r"no such ODBC driver or DSN .*SQLSTATE IM002"):
        asked(tmp_path / "1", "odbc:DSN=nowhere")
    with pytest.raises(SettingsError, match="no such ODBC driver or DSN"):
        asked(tmp_path / "2", "odbc:Driver=/no/such/driver.so")
    with pytest.raises(NetworkError, match="cannot be reached"):
        asked(tmp_path / "3", source.replace("people.db", "no/people.db"))
    for change in ("delete from people", "insert into people values ('k4', 1, 1)"):
        with pytest.raises(DataError, match="gives no table"):
            asked(tmp_path / "4", source, change)
    assert asked(tmp_path / "5", source).rows == 3


def test_a_column_of_dates_or_text_is_refused_by_name(tmp_path: Path, postgresql: str) -> None:
    with pytest.raises(DataError, match="column 'born' holds date32"):
        asked(tmp_path, postgresql, "select id, born from people")
    with pytest.raises(DataError, match=r"column 'secret', row 1, 2, 3: .*not a number") as caught:
        asked(tmp_path, postgresql, "select id, secret from people")
    assert "s3cret" not in str(caught.value)


def test_credentials_come_from_the_environment_or_a_private_file(tmp_path, monkeypatch) -> None:
    source = sqlite(tmp_path / "people.db")
    monkeypatch.setenv("BANK_DSN", source)
    assert asked(tmp_path / "1", "env:BANK_DSN").rows == 3
    secret = tmp_path / "dsn"
    secret.write_text(source + "\n")
    secret.chmod(0o644)
    with pytest.raises(SettingsError, match="others may read"):
        asked(tmp_path / "2", f"file:{secret}")
    secret.chmod(0o600)
    assert asked(tmp_path / "2", f"file:{secret}").rows == 3


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("postgresql://bank:s3cret@host/base", "no password in settings"),
        ("postgresql://host/base?password=s3cret", "no password in settings"),
        ("postgresql://bank:s3/cret@host/base", "no password in settings"),
        ("postgresql://host/base?sslpassword=s3cret", "no password in settings"),
        ("odbc:Driver=X;PWD=s3cret", "no password in settings"),
        ("odbc:Password=s3cret;Driver=X", "no password in settings"),
        ("odbc:Driver=X;AccessToken=s3cret", "no password in settings"),
        ("oracle://host/base", "give one of postgresql"),
        ("env:NO_SUCH_VARIABLE", "no variable NO_SUCH_VARIABLE"),
        ("file:/no/such/file", "No such file"),
    ],
)
def test_a_source_that_cannot_be_used_names_the_remedy(tmp_path, source, message) -> None:
    with pytest.raises(SettingsError, match=message) as caught:
        asked(tmp_path, source)
    assert "s3cret" not in str(caught.value)


def test_a_database_out_of_reach_is_told_from_a_wrong_query(tmp_path: Path) -> None:
    with pytest.raises(NetworkError, match="cannot be reached"):
        asked(tmp_path, "postgresql://127.0.0.1:9/base")
    with pytest.raises(DataError):
        asked(tmp_path, f"duckdb:{tmp_path / 'none.db'}")


def test_a_query_needs_its_database_and_no_file() -> None:
    for fields in ({"query": "select 1"}, {"source": "sqlite:x"}):
        with pytest.raises(ValidationError, match="go together"):
            DataSettings(**fields)
    with pytest.raises(ValidationError, match="not from both"):
        DataSettings(query="select 1", source="sqlite:x", file="x.csv")


@pytest.mark.slow
def test_a_million_rows_of_postgresql(tmp_path: Path, postgresql: str) -> None:
    columns = ", ".join(f"sin(i * {j})::float8 as x{j}" for j in range(1, 31))
    query = f"select 'k' || i as id, {columns} from generate_series(1, 1000000) i"
    began = time.perf_counter()
    found = asked(tmp_path, postgresql, query)
    print(f"\n1,000,000 x 30 from PostgreSQL, prepared: {time.perf_counter() - began:.1f} s")
    assert found.X.shape == (1_000_000, 30)
    assert found.ids[0][-1] == "k1000000"
    np.testing.assert_allclose(found.X[:1000, 0], np.sin(np.arange(1, 1001)), atol=1e-12)
