"""The memory of an entity resolution besides mapped arrays: a few buckets, however many ids."""

from __future__ import annotations

import tracemalloc
from collections import deque
from pathlib import Path

import numpy as np
import pytest
from psi_federation import received

from hdpvfl_mq.psi import (
    Session,
    Terms,
    Workspace,
    commit,
    nonce_of,
    normalise,
    open_session,
    order_digest,
    row_order,
)
from hdpvfl_mq.psi.ids import rules_digest
from parties.process.mapped_arrays import MappedArrays
from schemas.config import IdRules

pytestmark = pytest.mark.seconds
FEW_IDS = (66_000, 82_000)  # more than a chunk, so that a chunk does not grow
TRACED_BYTES_AN_ID = 2.0
TERMS = Terms(
    method="oprf",
    active="a",
    passives=("b",),
    session_id=b"\7" * 32,
    commitments=tuple(commit(nonce_of(name * 32), name.decode()) for name in (b"a", b"b")),
    profile_digest=rules_digest(IdRules()),
    block_bytes=1 << 17,
    window=2,
    bucket_ids=1 << 13,
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
    allocate, dice = MappedArrays(folder), np.random.default_rng(count)
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


def test_more_ids_need_hardly_more_memory(tmp_path: Path) -> None:
    small, large = (traced_peak(tmp_path, count) for count in FEW_IDS)
    an_id = (large - small) / (FEW_IDS[1] - FEW_IDS[0])
    assert an_id < TRACED_BYTES_AN_ID, f"{an_id:.1f} bytes an id, peaks {small}, {large}"
