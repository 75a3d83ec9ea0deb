"""A passive party's session.

It owns its moves: answer the active party's queries, then learn which ids are common.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from hdpvfl_mq.arrays.distinct import distinct
from hdpvfl_mq.arrays.packed_marks import pack_marks, unpack_marks
from hdpvfl_mq.errors import PeerError
from hdpvfl_mq.psi.elements import fill_bucket, find_pairs, split_buckets
from hdpvfl_mq.psi.exchange import Block, Messages
from hdpvfl_mq.psi.match import PAIR_BYTES, pack_sorted, pack_store, read_verdict, zero_share
from hdpvfl_mq.psi.session import Session
from hdpvfl_mq.psi.stream import Words, derive
from hdpvfl_mq.psi.workspace import Workspace

VERDICT_BYTES = 8 + 32  # the number of common ids, and the key all parties share
Step = tuple["PassiveSession", Messages]


@dataclass(frozen=True, kw_only=True, repr=False)
class PassiveSession(Session):
    """Answers queries about its ids, then learns which of them are common."""

    agreed: Any = None  # by the base transfers
    is_open: bool = False
    answered: int = 0
    is_judged: bool = False

    def _begin(self, work: Workspace) -> Messages:
        return ()

    def _needed(self) -> tuple[str, ...]:
        return (self.terms.active,)

    def _on_open(self, work: Workspace, block: Block) -> Step:
        if self.is_open:
            raise PeerError(f"{block.sender} opened twice, stage open")
        choice, agreed = self._function(work).answerer(self.me).choose(block.payload)
        after = replace(self, is_open=True, agreed=agreed)
        after = after._expect(block.sender, "query", 0, after._query_bytes)
        return after, (after._sealed(block.sender, "choose", choice),)

    def _on_query(self, work: Workspace, block: Block) -> Step:
        after, whole, outgoing = self._take(block, block.payload)
        if whole is None:
            return after, outgoing
        bucket = block.meta[0]
        answer = self._answer(work, bucket, whole)
        after = replace(after, answered=bucket + 1)
        if after.answered < after.buckets:
            after = after._expect(block.sender, "query", bucket + 1, after._query_bytes)
        sending = after._sending("answer", bucket, len(answer), answer)
        return after._send(work, block.sender, sending)

    def _answer(self, work: Workspace, bucket: int, query: bytes) -> bytes:
        real = self._elements(work)[self._members(work)[bucket]]
        root = self._root(work)
        filled = fill_bucket(real, self._capacity(self.me), derive(root, "dummies", bucket))
        answerer = self._function(work).answerer(self.me)
        count = self._capacity(self.terms.active)
        reply, outputs = answerer.answer(self.agreed, bucket, query, count, filled)
        others = [self.links[p].shared_key for p in self.terms.passives if p != self.me]
        if not others:
            return reply + pack_sorted(outputs)
        values = outputs ^ zero_share(filled, others, bucket)
        seed = derive(self.seed, "answer store", self.me, bucket)
        return reply + pack_store(values, filled, seed, derive(root, "store", bucket))

    def _on_verdict(self, work: Workspace, block: Block) -> Step:
        """Take the number of common ids or its withholding, sent once after the last answer."""
        is_due = self.answered == self.buckets and not self.sending.get(block.sender)
        if not is_due or self.is_judged or len(block.payload) != VERDICT_BYTES:
            raise PeerError(f"{block.sender} sent a verdict out of place, stage verdict")
        count, shared_key = read_verdict(block.payload[:8]), block.payload[8:]
        after = replace(self, is_judged=True, shared_key=shared_key)
        if count is None:
            return replace(after, is_withheld=True), ()
        if not self.terms.rows_min <= count <= min(self.terms.rows_max, len(work.ids)):
            raise PeerError(f"{block.sender} claims an impossible number of ids, stage verdict")
        none = tuple(bytes(-(-len(own) // 8)) for own in self._members(work))
        after = replace(after, found=none)
        return after._expect(block.sender, "common", self.buckets, PAIR_BYTES * count), ()

    def _on_common(self, work: Workspace, block: Block) -> Step:
        after, _, outgoing = self._take(block, b"")  # the payload is read below, not kept
        shown: Words = np.frombuffer(block.payload, "<u8").reshape(-1, 2)
        found, elements = list(self.found), self._elements(work)
        wanted = split_buckets(shown, self.buckets)
        for bucket, own in enumerate(self._members(work)):
            if not len(wanted[bucket]):
                continue
            places = find_pairs(shown[wanted[bucket]], elements[own])
            if (places < 0).any():
                raise PeerError(f"{block.sender} names ids that are not held here, stage common")
            marks = unpack_marks(found[bucket], len(own))
            if marks[places].any() or len(distinct(places)) < len(places):
                raise PeerError(f"{block.sender} names ids twice, stage common")
            marks[places] = True
            found[bucket] = pack_marks(marks)
        return replace(after, found=tuple(found), is_found=block.last), outgoing

    moves = MappingProxyType(
        {
            "open": _on_open,
            "query": _on_query,
            "verdict": _on_verdict,
            "common": _on_common,
            "credit": Session._on_credit,
        }
    )
