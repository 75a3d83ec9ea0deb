"""The memory of an entity resolution besides mapped arrays: a few buckets, however many ids."""

from __future__ import annotations

import tracemalloc
from collections import deque
from pathlib import Path

import numpy as np
import pytest
from psi_federation import received

from hdpvfl_mq.arrays import chunked
from hdpvfl_mq.engine.disk_space import DiskSpace
from hdpvfl_mq.psi import (
    Session,
    Terms,
    Workspace,
    commit,
    nonce_of,
    normalise,
    open_session,
    order_digest,
    packed,
    row_order,
    store,
)
from hdpvfl_mq.psi.ids import rules_digest
from parties.process.mapped_arrays import MappedArrays
from schemas.config import IdRules

pytestmark = pytest.mark.seconds
CHUNK, BUCKET = 1 << 12, 1 << 11  # smaller than in use: every allocation is traced, which is slow
FEW_IDS = (6_000, 12_000)  # more than a chunk, and buckets of the same size
TRACED_BYTES_AN_ID = 2.0
TERMS = Terms(
    method="oprf",
    active="a",
    passives=("b",),
    session_id=b"\7" * 32,
    commitments=tuple(commit(nonce_of(name * 32), name.decode()) for name in (b"a", b"b")),
    profile_digest=rules_digest(IdRules()),
    block_bytes=1 << 16,
    window=2,
    bucket_ids=BUCKET,
)


def resolve(works: dict[str, Workspace]) -> dict[str, Session]:
    """Deliver all messages, keeping none of them."""
    sessions = {name: open_session(TERMS, name, work) for name, work in works.items()}
    waiting = deque(
        (name, each) for name, session in sessions.items() for each in session.start(works[name])
    )
    while waiting:
        sender, message = waiting.popleft()
        for receiver in message.to:
            block = received(sender, message)
            sessions[receiver], more = sessions[receiver].receive(works[receiver], block)
            waiting.extend((receiver, each) for each in more)
    return sessions


def traced_peak(folder: Path, count: int) -> int:
    """Bytes at most, of two parties together, from columns of ids to the common order."""
    allocate, dice = MappedArrays(DiskSpace(folder)), np.random.default_rng(count)
    columns = [dice.permutation(2 * count)[:count] for _ in range(2)]
    tracemalloc.start()
    ids = [normalise([column], IdRules(kind="integer"), allocate).ids for column in columns]
    works = {
        name: Workspace(own, name.encode() * 32, allocate=allocate)
        for name, own in zip("ab", ids, strict=True)
    }
    sessions, digests = resolve(works), set()
    for session, work, own in zip(sessions.values(), works.values(), ids, strict=True):
        common = own.chosen(session.positions(work), allocate)
        order = row_order(common, bytes(32), allocate)
        digests.add(order_digest(common.chosen(order, allocate), bytes(32)))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(digests) == 1
    assert len(common) == len(np.intersect1d(*columns))
    return peak


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunked.chunks, "__defaults__", (CHUNK,))
    monkeypatch.setattr(packed, "CHUNK_ROWS", CHUNK)
    monkeypatch.setattr(store, "_CHUNK", CHUNK)


@pytest.mark.usefixtures("small_chunks")
def test_more_ids_need_hardly_more_memory(tmp_path: Path) -> None:
    traced_peak(tmp_path, 1_000)  # what is made once in a process would count for the first
    small, large = (traced_peak(tmp_path, count) for count in FEW_IDS)
    an_id = (large - small) / (FEW_IDS[1] - FEW_IDS[0])
    assert an_id < TRACED_BYTES_AN_ID, f"{an_id:.1f} bytes an id, peaks {small}, {large}"
