"""Reads the files of a run as evidence, without changing them.

It owns where an auditor finds journals, ledgers and keys; it judges nothing. A database is copied
with its write-ahead log and the copy is opened: nobody writes to the evidence, not even SQLite, and
a run that is still going on can be audited.
"""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

import tomli
from pydantic import ValidationError

from hdpvfl_mq.audit.evidence import Evidence, Key, StoredEntry, Transcript
from hdpvfl_mq.errors import IntegrityError, SettingsError
from hdpvfl_mq.journal.parts import SpooledParts
from hdpvfl_mq.journal.store import check_format
from schemas.config import Peer
from schemas.ids import PartyId

# Views, triggers and virtual tables, then columns with a formula: reading them would run what the
# author of the file wrote.
_COMPUTED = (
    "SELECT name FROM sqlite_master WHERE type != 'index' "
    "AND (type != 'table' OR upper(sql) NOT LIKE 'CREATE TABLE%')",
    "SELECT made.name FROM sqlite_master made, pragma_table_xinfo(made.name) "
    "WHERE made.type = 'table' AND hidden != 0",
)
PARTS = "parts"  # a journal without large arrays has no such table


LATEST = "latest"


def run_folder(run: str, runs: Path) -> Path:
    """The folder of a run, by path or by name."""
    for folder in (Path(run), runs / run):
        if any(folder.glob("*/journal.db")):
            return folder.resolve()
    if run == LATEST and (newest := _newest(runs)) is not None:
        return newest.resolve()
    if Path(run).is_file():
        raise SettingsError(
            f"{run} is neither a run's folder nor a whole bundle; bundles are made by 'hdpvfl "
            "evidence' and read by 'hdpvfl audit' only"
        )
    raise SettingsError(
        f"there is no run {run!r} with journals here or in {runs}: name a run or its folder, or "
        "name the folder of runs with --runs"
    )


def _newest(runs: Path) -> Path | None:
    """The newest training, or the newest run: services keep no link to it, unlike 'hdpvfl up'."""
    for pattern in ("*/*/model.json", "*/*/journal.db"):
        if found := list(runs.glob(pattern)):
            return max(found, key=lambda path: path.stat().st_mtime).parent.parent
    return None


@contextmanager
def opened_copy(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection to a copy of a database that may be in use."""
    with tempfile.TemporaryDirectory(prefix="hdpvfl-") as folder:
        copy = Path(folder) / path.name
        for suffix in ("", "-wal"):
            source = path.with_name(path.name + suffix)
            if source.exists():
                shutil.copyfile(source, copy.with_name(path.name + suffix))
        with closing(sqlite3.connect(copy)) as connection:
            connection.execute("PRAGMA trusted_schema=OFF")
            for computed in _COMPUTED:
                if found := connection.execute(computed).fetchone():
                    raise IntegrityError(f"{path} computes {found[0]} instead of storing it")
            yield connection


def copy_tables(source: Path, target: Path, tables: tuple[str, ...]) -> None:
    """Copy the rows of these tables, and nothing else, into a new database."""
    try:
        with opened_copy(source) as connection:
            connection.execute("ATTACH ? AS target", (str(target),))
            stored = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
            for table in (t for t in tables if t in stored or t != PARTS):
                connection.execute(
                    f"CREATE TABLE target.{table} AS SELECT * FROM main.{table}"  # noqa: S608 - names in the code
                )
            connection.commit()
    except sqlite3.Error as broken:
        raise IntegrityError(f"{source} cannot be copied: {broken}") from None


def read_transcript(path: Path, party: PartyId) -> Transcript:
    """One journal; IntegrityError if the file is not a journal or its tables are damaged.

    OperatorError if its format is another one: that is no contradiction in the evidence.
    """
    try:
        with opened_copy(path) as connection:
            rows = tuple(connection.execute("SELECT idx, record, digest FROM records ORDER BY idx"))
            meta = dict(connection.execute("SELECT key, value FROM meta"))
            parts = SpooledParts(connection)
    except sqlite3.Error as broken:
        raise IntegrityError(f"{path} is not a readable journal: {broken}") from None
    check_format(path, meta)
    for index, record, digest in rows:
        if not isinstance(record, bytes) or not isinstance(digest, bytes):
            raise IntegrityError(f"{path}: record {index} is not stored as bytes")
    return Transcript(party, meta, rows, parts.joined)


def read_ledger(path: Path) -> tuple[StoredEntry, ...]:
    """The stored entries of a ledger."""
    try:
        with opened_copy(path) as connection:
            rows = connection.execute("SELECT * FROM entry ORDER BY sequence").fetchall()
    except sqlite3.Error as broken:
        raise IntegrityError(f"{path} is not a readable ledger: {broken}") from None
    return tuple((*row, None)[:5] for row in rows)  # format 1 had no openings


def read_keys(folder: Path, members: Path | None = None) -> dict[PartyId, Key]:
    """Public keys from a members file, or from the settings next to the journals."""
    beside = [*(folder / "settings").glob("*.toml"), *folder.glob("*/settings.toml")]
    beside += folder.glob("*/members.toml")
    files = [members] if members else sorted(beside)
    found: dict[PartyId, Key] = {}
    for path in files:
        for party, key in _keys_in(path):
            if found.setdefault(party, key) != key:
                raise IntegrityError(f"{path} and other files give {party} different keys or roles")
    if not found:
        raise SettingsError(
            f"no public keys in {members or folder / 'settings'}: give --members FILE with one "
            "[[members]] table for each party: party, role, verify_key"
        )
    return found


def _keys_in(path: Path) -> Iterator[tuple[PartyId, Key]]:
    try:
        values = tomli.loads(path.read_text())
    except OSError as missing:
        raise SettingsError(f"{path}: {missing.strerror}: give a file of members' keys") from None
    except (tomli.TOMLDecodeError, UnicodeDecodeError):
        raise SettingsError(
            f"{path} is not a file of members' keys: give the members.toml of this run, with one "
            "[[members]] table for each party: party, role, verify_key"
        ) from None
    except RecursionError:
        raise IntegrityError(f"{path}: nested too deeply to be a file of this project") from None
    for member in [*values.get("members", []), *values.get("peers", [])]:
        try:
            peer = Peer.model_validate({k: member.get(k) for k in Peer.model_fields})
        except ValidationError:
            raise SettingsError(f"{path}: a member needs party, role and verify_key") from None
        yield peer.party, Key(peer.role, bytes.fromhex(peer.verify_key))


def read_evidence(
    folder: Path,
    *,
    members: Path | None = None,
    ledgers: Path | None = None,
    only: tuple[PartyId, ...] = (),
) -> Evidence:
    """Everything found in the folder of a run: <party>/journal.db, and <party>/ledger.db."""
    journals = {p.parent.name: p for p in sorted(folder.glob("*/journal.db"))}
    wanted = {party: path for party, path in journals.items() if not only or party in only}
    missing = set(only) - set(journals)
    if missing or not wanted:
        names = ", ".join(sorted(missing)) or "any party"
        raise SettingsError(f"{folder} holds no journal of {names}: expected <party>/journal.db")
    keys = read_keys(folder, members)
    strangers = sorted(set(wanted) - set(keys))
    if strangers:
        raise SettingsError(
            f"{members or 'the settings beside the journals'}: no key of {', '.join(strangers)} "
            f"(there are keys of {', '.join(sorted(keys))}): give --members FILE with the members "
            "of this run"
        )
    transcripts = {party: read_transcript(path, party) for party, path in wanted.items()}
    return Evidence(
        run=folder.resolve().name,
        keys=keys,
        transcripts=transcripts,
        ledgers=_ledgers(ledgers or folder, wanted),
    )


def _ledgers(
    folder: Path, wanted: Mapping[PartyId, Path]
) -> dict[PartyId, tuple[StoredEntry, ...]]:
    paths = {party: folder / party / "ledger.db" for party in wanted}
    return {party: read_ledger(path) for party, path in paths.items() if path.exists()}
