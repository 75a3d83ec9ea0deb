"""Alignments on disk: kept for later runs on the same ids, readable by their owner only.

It owns the folder `state/<party>/alignments`; the roles know what an alignment means. A run must
see at every restart what it saw at its first start, because its journal is replayed against that;
so the names are written down at the first start. An alignment is never deleted, because the journal
of a run that used it cannot be replayed without it.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from hdpvfl_mq.errors import IntegrityError, OperatorError, PeerError
from hdpvfl_mq.runtime.files import write_private
from hdpvfl_mq.wire.canonical import pack, unpack
from schemas.alignment import KeptAlignment
from schemas.ids import PartyId, RunId
from schemas.tensor import MAX_TENSOR_BYTES

_MAX_BYTES = MAX_TENSOR_BYTES + 2**16


class AlignmentStore:
    """Writes this run's alignment to disk once."""

    def __init__(self, folder: Path, run: RunId) -> None:
        self._folder, self._run = folder, run
        self._is_kept = False

    def keep(self, alignment: KeptAlignment | None) -> None:
        """Write the alignment to disk; call this once all parties have found the same rows."""
        if self._is_kept or alignment is None:
            return
        path = _file(self._folder, alignment)
        if not path.exists():
            _write(path, pack(alignment.model_dump()))
        _write(self._folder / f"{self._run}.found", path.name.encode())
        self._is_kept = True


def usable(
    folder: Path, run: RunId, ids_digest: bytes, id_profile_digest: bytes
) -> tuple[KeptAlignment, ...]:
    """The newest alignment of these ids for each set of parties, as of the run's first start."""
    seen = folder / f"{run}.seen"
    if seen.exists():
        return tuple(_read(folder / name) for name in seen.read_text().split())
    newest: dict[tuple[PartyId, ...], KeptAlignment] = {}
    files = folder.glob(f"{_ids(ids_digest, id_profile_digest)}-*.alignment")
    for path in sorted(files, key=lambda path: path.stat().st_mtime_ns):
        kept = _read(path)
        newest[kept.parties] = kept
    found = tuple(newest.values())
    _write(seen, "".join(f"{_file(folder, kept).name}\n" for kept in found).encode())
    return found


def found(folder: Path, run: RunId) -> KeptAlignment | None:
    """The alignment this run uses, if an earlier process of the run got that far."""
    named = folder / f"{run}.found"
    path = folder / named.read_text() if named.exists() else None
    return _read(path) if path is not None and path.exists() else None


def _file(folder: Path, kept: KeptAlignment) -> Path:
    ids = _ids(kept.ids_digest, kept.id_profile_digest)
    return folder / f"{ids}-{kept.name.hex()[:32]}.alignment"


def _ids(ids_digest: bytes, id_profile_digest: bytes) -> str:
    return hashlib.sha256(ids_digest + id_profile_digest).hexdigest()[:32]


def _read(path: Path) -> KeptAlignment:
    try:
        stored = path.read_bytes()
    except OSError as missing:
        raise OperatorError(
            f"cannot read {path}: {missing.strerror}; put the file back, this run relies on it"
        ) from None
    try:
        kept = KeptAlignment.model_validate(_upgraded(unpack(stored, max_bytes=_MAX_BYTES)))
    except (PeerError, ValidationError):
        kept = None
    if kept is None or _file(path.parent, kept) != path:
        raise IntegrityError(f"{path} is damaged: put a good copy back, or delete it")
    return kept


def _upgraded(fields: Any) -> Any:
    """Fields of format 1, which was keyed by rows: only runs that already rely on one read it."""
    if not isinstance(fields, dict) or fields.get("format") != 1:
        return fields
    rows = fields.pop("fingerprint", None)
    return {**fields, "format": 2, "ids_digest": rows}


def _write(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_private(path, content, durable=True)
