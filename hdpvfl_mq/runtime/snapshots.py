"""A process's snapshot on disk, taken when replaying the journal would take noticeable time.

It owns one file and when it is written; it knows no role. The file is signed with the process's own
key and not forced to disk: a snapshot that is torn, stale or signed by another key is ignored, and
the journal is folded from its first record.
"""

from __future__ import annotations

import hashlib
import time
from contextlib import suppress
from pathlib import Path
from weakref import WeakSet

from nacl.signing import SigningKey
from pydantic import ValidationError

from hdpvfl_mq.errors import PeerError
from hdpvfl_mq.node import node_snapshot
from hdpvfl_mq.node.node import Node
from hdpvfl_mq.runtime.files import aside_of, write_private
from hdpvfl_mq.wire.canonical import pack, unpack
from hdpvfl_mq.wire.signing import sign, verify
from schemas.snapshot import NodeSnapshot

# Least processor time between two snapshots; a restart repeats what was computed since the last.
EVERY_CPU_S = 1.0
LOOK_S = 0.05  # the clock of processor time is a system call: it is read this often
# And at least this many times the processor time of the last snapshot, for each node of the
# process, so that all of them together use at most a twentieth of its time.
REST_BY_COST = 20.0
_DOMAIN = b"hdpvfl-mq snapshot 1\x00"
_SIGNATURE_BYTES = 64
_MAX_BYTES = 2**31
_all: WeakSet[Snapshots] = WeakSet()


class Snapshots:
    """One process's snapshot file."""

    def __init__(self, path: Path, key: SigningKey) -> None:
        self._path, self._key = path, key
        self._next_s, self._look_at = time.process_time() + EVERY_CPU_S, 0.0
        _all.add(self)

    def see(self, node: Node) -> None:
        """Write a snapshot of a node after a commit, if much was computed since the last one."""
        if node.outcome is not None:
            _all.discard(self)
            for path in (self._path, aside_of(self._path)):
                path.unlink(missing_ok=True)
            return
        if (now := time.monotonic()) < self._look_at:
            return
        self._look_at, began_s = now + LOOK_S, time.process_time()
        if began_s < self._next_s:
            return
        # If a snapshot cannot hold the state, or the disk is full, a restart is only slower; the
        # journal reports the fault of the disk.
        with suppress(OSError, ValidationError):
            snapshot = node_snapshot.take(node)
            if snapshot is not None:
                self._write(pack(snapshot.model_dump()))
        now_s = time.process_time()
        rest_s = REST_BY_COST * len(_all) * (now_s - began_s)
        self._next_s = now_s + max(EVERY_CPU_S, rest_s)

    def load(self) -> NodeSnapshot | None:
        """The last snapshot, if it is whole and signed by this process."""
        try:
            stored = self._path.read_bytes()
            signature, body = stored[:_SIGNATURE_BYTES], stored[_SIGNATURE_BYTES:]
            verify(self._key.verify_key, _digest(body), signature)
            return NodeSnapshot.model_validate(unpack(body, max_bytes=_MAX_BYTES))
        except (OSError, PeerError, ValidationError):
            return None

    def _write(self, body: bytes) -> None:
        if len(body) > _MAX_BYTES:
            return
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        write_private(self._path, sign(self._key, _digest(body)) + body)


def _digest(body: bytes) -> bytes:
    return hashlib.sha256(_DOMAIN + body).digest()
