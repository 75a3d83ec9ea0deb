"""One file with all evidence of a run: journals, ledgers and public keys, dated and signed.

It owns what goes into a bundle and how a bundle is opened; it judges no journal. A bundle holds the
rows of the chains and nothing else: a ledger file also stores a secret sketch of ids, which must
not leave, so tables are copied by name.
"""

from __future__ import annotations

import hashlib
import tempfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from nacl.signing import SigningKey, VerifyKey
from pydantic import BaseModel, ValidationError

from hdpvfl_mq.audit.evidence import Key
from hdpvfl_mq.audit.reader import PARTS, copy_tables, read_keys, read_ledger
from hdpvfl_mq.errors import IntegrityError, SettingsError
from hdpvfl_mq.runtime.files import writing_private
from hdpvfl_mq.runtime.settings import dump_settings
from hdpvfl_mq.wire.signing import is_signed
from schemas.bundle import (
    BundleFile,
    BundleIndex,
    BundleMembers,
    BundleSignature,
    BundleSignatures,
)
from schemas.config import Peer
from schemas.ids import PartyId

INDEX, SIGNATURES, MEMBERS = "evidence.json", "signatures.json", "members.toml"
TABLES = {"journal.db": ("meta", "records", PARTS), "ledger.db": ("entry",)}
_DOMAIN = b"hdpvfl-mq evidence 1\x00"
_INDEX_BYTES_MAX = 1 << 20
# Journals hold signatures, digests and noise, which hardly shrink.
EXPANSION_MAX, SMALL_BYTES = 100, 16 << 20
_BLOCK = 1 << 20
# OSError too: a damaged archive can make zipfile seek outside the file.
_NOT_A_ZIP = (zipfile.BadZipFile, zlib.error, NotImplementedError, EOFError, OSError)
M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True)
class Stamp:
    """Who makes a bundle, when and with which version."""

    made_at: str
    version: str
    keys: Mapping[PartyId, SigningKey]


@dataclass(frozen=True)
class Bundle:
    """An opened bundle: its files match their digests, and these parties signed it."""

    folder: Path
    index: BundleIndex
    signed_by: tuple[PartyId, ...]


def signed_bytes(index: bytes) -> bytes:
    """What a party signs: the digest of the index, which names the digest of every file."""
    return hashlib.sha256(_DOMAIN + index).digest()


def is_bundle(path: Path) -> bool:
    """Whether a path names a bundle rather than a folder."""
    return path.is_file() and zipfile.is_zipfile(path)


def pack(
    path: Path, run: Path, *, journals: tuple[PartyId, ...], ledgers: Path | None, stamp: Stamp
) -> BundleIndex:
    """Write a bundle of the named journals; the file appears whole or not at all."""
    with tempfile.TemporaryDirectory(prefix="hdpvfl-") as name:
        folder = Path(name)
        for party in journals:
            _copy(run / party / "journal.db", folder / party / "journal.db")
            ledger = (ledgers or run) / party / "ledger.db"
            if ledger.exists() and not _tests_guesses(ledger):
                _copy(ledger, folder / party / "ledger.db")
        (folder / MEMBERS).write_text(_members(read_keys(run)))
        names = sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())
        index = BundleIndex(
            run=run.resolve().name,
            made_at=stamp.made_at,
            version=stamp.version,
            journals=journals,
            files=tuple(_described(folder, name) for name in names),
        )
        _write(path, folder, index, stamp.keys)
    return index


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(exist_ok=True)
    copy_tables(source, target, TABLES[target.name])


def _tests_guesses(ledger: Path) -> bool:
    """Whether it has entries of format 1, whose unkeyed digest of all rows must not leave."""
    return any(opening is None for *_, opening in read_ledger(ledger))


def _members(keys: Mapping[PartyId, Key]) -> str:
    peers = (
        Peer(party=party, role=key.role, verify_key=key.verify_key.hex())
        for party, key in sorted(keys.items())
    )
    return dump_settings(BundleMembers(members=tuple(peers)))


def _described(folder: Path, name: str) -> BundleFile:
    path = folder / name
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return BundleFile(name=name, sha256=digest, bytes=path.stat().st_size)


def _write(
    path: Path, folder: Path, index: BundleIndex, keys: Mapping[PartyId, SigningKey]
) -> None:
    plain = index.model_dump_json(indent=1).encode()
    signatures = BundleSignatures(
        signatures=tuple(
            BundleSignature(party=party, signature=key.sign(signed_bytes(plain)).signature.hex())
            for party, key in sorted(keys.items())
        )
    )
    with (
        writing_private(path) as file,
        zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as packed,
    ):
        packed.writestr(INDEX, plain)
        packed.writestr(SIGNATURES, signatures.model_dump_json(indent=1))
        for described in index.files:
            packed.write(folder / described.name, described.name)


@contextmanager
def unpacked(path: Path, members: Path | None = None) -> Iterator[Bundle]:
    """Unpack a bundle into a temporary folder, which is deleted afterwards.

    IntegrityError if a file is missing, extra or changed, or if a signature does not verify with
    the key in `members` or, without `members`, with the key in the bundle.
    """
    with tempfile.TemporaryDirectory(prefix="hdpvfl-") as name:
        try:
            with zipfile.ZipFile(path) as packed:
                opened = _opened(packed, Path(name), members)
        except _NOT_A_ZIP as broken:
            raise IntegrityError(f"{path} is not a readable bundle: {broken}") from None
        yield opened


def _opened(packed: zipfile.ZipFile, base: Path, members: Path | None) -> Bundle:
    plain = _small(packed, INDEX)
    index = _parsed(BundleIndex, plain, INDEX)
    names = [each.name for each in index.files]
    held = sorted(packed.namelist())
    if held != sorted([INDEX, SIGNATURES, *names]) or len(set(held)) != len(held):
        raise IntegrityError(f"the files of the bundle do not match its {INDEX}")
    if {f"{party}/journal.db" for party in index.journals} != {
        name for name in names if name.endswith("/journal.db")
    }:
        raise IntegrityError(f"{INDEX}: the journals it names do not match its list of files")
    packed_bytes = sum(each.compress_size for each in packed.infolist())
    if sum(each.bytes for each in index.files) > EXPANSION_MAX * packed_bytes + SMALL_BYTES:
        raise IntegrityError("the bundle grows too much when it is unpacked: it is not evidence")
    folder = base / index.run
    for described in index.files:
        _extract(packed, folder, described)
    keys = read_keys(folder, members or folder / MEMBERS)
    signatures = _parsed(BundleSignatures, _small(packed, SIGNATURES), SIGNATURES).signatures
    if members is not None:
        _compare(members, keys, read_keys(folder, folder / MEMBERS))
    for each in signatures:
        key = keys.get(each.party)
        signature = bytes.fromhex(each.signature)
        if key is None or not is_signed(VerifyKey(key.verify_key), signed_bytes(plain), signature):
            raise IntegrityError(f"the bundle's signature of {each.party} does not verify")
    return Bundle(folder, index, tuple(each.party for each in signatures))


def _compare(members: Path, known: Mapping[PartyId, Key], stated: Mapping[PartyId, Key]) -> None:
    """Refuse a members file whose parties or keys differ from the bundle's."""
    missing = sorted(set(stated) - set(known))
    if missing:
        raise SettingsError(
            f"{members} has no key of {', '.join(missing)}: it is not the file of this run's "
            "members"
        )
    differ = sorted(party for party, key in stated.items() if known[party] != key)
    if differ:
        raise IntegrityError(
            f"{members} and the bundle state different keys for {', '.join(differ)}: the file "
            "is that of other members, or somebody else made the bundle"
        )


def _small(packed: zipfile.ZipFile, name: str) -> bytes:
    try:
        with packed.open(name) as file:
            content = file.read(_INDEX_BYTES_MAX + 1)
    except KeyError:
        raise SettingsError(f"the file holds no {name}: make one with 'hdpvfl evidence'") from None
    if len(content) > _INDEX_BYTES_MAX:
        raise IntegrityError(f"{name} is longer than {_INDEX_BYTES_MAX} bytes")
    return content


def _parsed(model: type[M], content: bytes, name: str) -> M:
    try:
        return model.model_validate_json(content)
    except ValidationError:
        raise IntegrityError(
            f"{name} does not have the fields of a bundle of this version"
        ) from None


def _extract(packed: zipfile.ZipFile, folder: Path, described: BundleFile) -> None:
    target, digest, size = folder / described.name, hashlib.sha256(), 0
    target.parent.mkdir(parents=True, exist_ok=True)
    with packed.open(described.name) as source, target.open("wb") as file:
        while block := source.read(_BLOCK):
            size += len(block)
            if size > described.bytes:  # also stops a file that expands without limit
                break
            digest.update(block)
            file.write(block)
    if size != described.bytes or digest.hexdigest() != described.sha256:
        raise IntegrityError(f"{described.name} is not the file that the bundle's index names")
