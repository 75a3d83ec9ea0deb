"""The active party's session.

It owns its moves: query every passive party, match, send the result. Two buckets are open at a
time: while passive parties answer one, the active party works on the other. Memory holds two
buckets.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from hdpvfl_mq.arrays.packed_marks import pack_marks, unpack_marks
from hdpvfl_mq.errors import PeerError
from hdpvfl_mq.psi.blocks import Outgoing
from hdpvfl_mq.psi.elements import fill_bucket
from hdpvfl_mq.psi.exchange import Block, Messages, nothing, put, without
from hdpvfl_mq.psi.greeting import pack_hellos
from hdpvfl_mq.psi.match import PAIR_BYTES, differences, pack_sorted, pack_verdict
from hdpvfl_mq.psi.oprf import Query
from hdpvfl_mq.psi.session import Session
from hdpvfl_mq.psi.store import locate
from hdpvfl_mq.psi.stream import Words, derive
from hdpvfl_mq.psi.workspace import Workspace

_OPEN_BUCKETS = 2
Step = tuple["ActiveSession", Messages]


@dataclass(frozen=True, repr=False)
class OpenBucket:
    """A bucket whose query is sent and whose answers are not complete."""

    sums: Words  # the sum of the answers so far, for each element
    waiting: frozenset[str]


@dataclass(frozen=True, kw_only=True, repr=False)
class ActiveSession(Session):
    """Learns which of its ids all passive parties have, and sends them the result."""

    agreed: Mapping[str, Any] = field(default_factory=nothing)
    open: Mapping[int, OpenBucket] = field(default_factory=nothing)
    asked: int = 0

    def _begin(self, work: Workspace) -> Messages:
        asker, passives = self._function(work).asker(), self.terms.passives
        opening = tuple(self._sealed(peer, "open", asker.opening(peer)) for peer in passives)
        if not self.terms.is_relayed:
            return opening
        hellos = {**self.hellos, self.me: self._signed_hello(work)}
        listed = pack_hellos(self.terms.parties, hellos)
        return (Outgoing(passives, "hellos", 0, True, listed), *opening)

    def _needed(self) -> tuple[str, ...]:
        passives = self.terms.passives
        if len(self.agreed) < len(passives):
            return tuple(peer for peer in passives if peer not in self.agreed)
        asked = {peer for bucket in self.open.values() for peer in bucket.waiting}
        return tuple(peer for peer in passives if peer in asked or self.sending.get(peer))

    def _on_choose(self, work: Workspace, block: Block) -> Step:
        if block.sender in self.agreed:
            raise PeerError(f"{block.sender} chose twice, stage choose")
        agreed = self._function(work).asker().agree(block.sender, block.payload)
        after = replace(self, agreed=put(self.agreed, block.sender, agreed))
        if len(after.agreed) < len(self.terms.passives):
            return after, ()
        for peer in self.terms.passives:
            after = after._expect(peer, "answer", 0, after._answer_bytes(peer))
        return after._ask_more(work)

    def _query(self, work: Workspace, bucket: int) -> Query:
        """The query of one bucket, for every peer."""

        def make() -> Query:
            real = self._elements(work)[self._members(work)[bucket]]
            dummies = derive(self._root(work), "dummies", bucket)
            filled = fill_bucket(real, self._capacity(self.me), dummies)
            return self._function(work).asker().prepare(bucket, filled)

        return work.once(("query", bucket % _OPEN_BUCKETS), (self.seed, bucket), make)

    def _ask_more(self, work: Workspace) -> Step:
        """Send queries of buckets until enough are open."""
        after: ActiveSession = self
        outgoing: Messages = ()
        while after.asked < after.buckets and len(after.open) < _OPEN_BUCKETS:
            bucket, query = after.asked, after._query(work, after.asked)
            opened = OpenBucket(np.zeros_like(query.elements), frozenset(after.terms.passives))
            after = replace(after, asked=bucket + 1, open=put(after.open, bucket, opened))
            for peer in after.terms.passives:
                data = query.sent_to(peer, after.agreed[peer])
                sending = after._sending("query", bucket, len(data), data)
                after, more = after._send(work, peer, sending)
                outgoing += more
        return after, outgoing

    def _on_answer(self, work: Workspace, block: Block) -> Step:
        sender, number = block.sender, block.meta[0] if block.meta else -1
        is_asked = not any(sending.bucket <= number for sending in self.sending.get(sender, ()))
        if number not in self.open or not is_asked:
            raise PeerError(f"{sender} answered what was not asked, stage answer")
        after, whole, outgoing = self._take(block, block.payload)
        if whole is None:
            return after, outgoing
        after = after._counted_in(work, sender, number, whole)
        if number + 1 < self.buckets:
            after = after._expect(sender, "answer", number + 1, len(whole))
        return (after, ()) if after.open[number].waiting else after._close(work, number)

    def _counted_in(
        self, work: Workspace, sender: str, number: int, answer: bytes
    ) -> ActiveSession:
        """Add one passive party's answer to a bucket; the order of parties does not matter."""
        query, bucket = self._query(work, number), self.open[number]
        outputs = query.outputs(sender, self.agreed[sender], answer[: self._reply_bytes])
        seed = derive(self.seed, "answer store", sender, number)
        is_store = len(self.terms.passives) > 1
        cells = locate(query.elements, self._capacity(sender), seed) if is_store else None
        sums = bucket.sums ^ differences(outputs, answer[self._reply_bytes :], cells)
        counted = OpenBucket(sums, bucket.waiting - {sender})
        return replace(self, open=put(self.open, number, counted))

    def _close(self, work: Workspace, number: int) -> Step:
        """Every passive party has answered this bucket."""
        sums = self.open[number].sums[: len(self._members(work)[number])]
        marks = pack_marks((sums[:, 0] | sums[:, 1]) == 0)
        after = replace(self, open=without(self.open, number), found=(*self.found, marks))
        return after._ask_more(work) if len(after.found) < self.buckets else after._finish(work)

    def _finish(self, work: Workspace) -> Step:
        """Send the common elements to every passive party, or only that they are withheld."""
        count = sum(map(_marked, self.found))
        is_revealed = self.terms.rows_min <= count <= self.terms.rows_max
        shared_key = derive(self._root(work), "shared key")
        verdict = pack_verdict(count if is_revealed else None) + shared_key
        outgoing = tuple(self._sealed(peer, "verdict", verdict) for peer in self.terms.passives)
        after = replace(
            self, shared_key=shared_key, is_found=is_revealed, is_withheld=not is_revealed
        )
        if not is_revealed:
            return after, outgoing
        common = self._sending("common", self.buckets, PAIR_BYTES * count, None)
        for peer in self.terms.passives:
            after, more = after._send(work, peer, common)
            outgoing += more
        return after, outgoing

    def _read(self, work: Workspace, start: int, stop: int) -> bytes:
        """Part of the common elements, sorted bucket by bucket."""
        elements, parts, offset = self._elements(work), [], 0
        for members, packed in zip(self._members(work), self.found, strict=True):
            end = offset + PAIR_BYTES * _marked(packed)
            if start < end and offset < stop:
                shown = pack_sorted(elements[members[unpack_marks(packed, len(members))]])
                parts.append(shown[max(0, start - offset) : stop - offset])
            offset = end
        return b"".join(parts)

    moves = MappingProxyType(
        {"choose": _on_choose, "answer": _on_answer, "credit": Session._on_credit}
    )


def _marked(packed: bytes) -> int:
    return int.from_bytes(packed, "big").bit_count()
