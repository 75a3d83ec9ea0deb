"""The active party's session. Owns its moves: ask every passive party, match, tell what is common.

Two buckets are open at a time: while passive parties answer one, the active party works on the
other, and memory is that of two buckets.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from hdpvfl_mq.arrays.chunked import marked, marks
from hdpvfl_mq.errors import PeerError
from hdpvfl_mq.psi.blocks import Outgoing, read_slice
from hdpvfl_mq.psi.elements import fill_bucket
from hdpvfl_mq.psi.match import PAIR_BYTES, Tally, pack_sorted, pack_verdict
from hdpvfl_mq.psi.methods import Function
from hdpvfl_mq.psi.oprf import Asker, Query
from hdpvfl_mq.psi.session import Block, OwnSet, Session, Terms
from hdpvfl_mq.psi.stream import derive

_OPEN_BUCKETS = 2


@dataclass(frozen=True, repr=False)
class _Bucket:
    """A bucket that has been asked and not yet fully answered."""

    query: Query
    tally: Tally
    waiting: set[str]


class ActiveSession(Session):
    """Learns which of its ids all passive parties have, and tells them."""

    _asker: Asker

    def __init__(self, terms: Terms, own: OwnSet, secret: bytes) -> None:
        super().__init__(terms, terms.active, own, secret)
        self._chosen: set[str] = set()
        self._open: dict[int, _Bucket] = {}
        self._asked = 0
        self._is_common = marks(len(own.ids), own.room)
        self._found: list[int] = []  # common elements of each bucket that is closed

    def _prepare(self, function: Function) -> None:
        self._lengths = self._asker = function.asker()

    def _begin(self) -> tuple[Outgoing, ...]:
        return tuple(
            self._sealed(peer, "open", self._asker.opening(peer)) for peer in self.terms.passives
        )

    def _on_choose(self, block: Block) -> tuple[Outgoing, ...]:
        if block.sender in self._chosen:
            raise PeerError(f"{block.sender} chose twice, stage choose")
        self._asker.accept_choice(block.sender, block.payload)
        self._chosen.add(block.sender)
        if len(self._chosen) < len(self.terms.passives):
            return ()
        for peer in self.terms.passives:
            self._expect(peer, "answer", 0, self._answer_bytes(peer))
        return self._ask_more()

    def _ask_more(self) -> tuple[Outgoing, ...]:
        """Ask buckets until enough are open."""
        outgoing: tuple[Outgoing, ...] = ()
        while self._asked < self._buckets and len(self._open) < _OPEN_BUCKETS:
            bucket, self._asked = self._asked, self._asked + 1
            real = self._elements[self._members[bucket]]
            dummies = derive(self._root, "dummies", bucket)
            filled = fill_bucket(real, self._capacity(self.me), dummies)
            query = self._asker.prepare(bucket, filled)
            tally = Tally(filled, len(self.terms.passives))
            self._open[bucket] = _Bucket(query, tally, set(self.terms.passives))
            for peer in self.terms.passives:
                read = partial(read_slice, query.sent_to(peer))
                outgoing += self._send(peer, "query", bucket, self._query_bytes, read)
        return outgoing

    def _on_answer(self, block: Block) -> tuple[Outgoing, ...]:
        number = block.meta[0] if block.meta else -1
        is_asked = not any(sending.bucket <= number for sending in self._sending[block.sender])
        if number not in self._open or not is_asked:
            raise PeerError(f"{block.sender} answered what was not asked, stage answer")
        whole, outgoing = self._take(block)
        if whole is None:
            return outgoing
        bucket = self._open[number]
        reply_bytes = self._asker.reply_bytes(self._capacity(self.me))
        outputs = bucket.query.outputs(block.sender, whole[:reply_bytes].tobytes())
        self._taken(block.sender)
        seed = derive(self._seed, "answer store", block.sender, number)
        bucket.tally.add(outputs, whole[reply_bytes:], self._capacity(block.sender), seed)
        bucket.waiting.remove(block.sender)
        if number + 1 < self._buckets:
            self._expect(block.sender, "answer", number + 1, len(whole))
        return () if bucket.waiting else self._close(number)

    def _close(self, number: int) -> tuple[Outgoing, ...]:
        """All have answered this bucket."""
        bucket = self._open.pop(number)
        members = self._members[number]
        common = members[bucket.tally.common()[: len(members)]]
        self._is_common[common] = True
        self._found.append(len(common))
        return self._ask_more() if len(self._found) < self._buckets else self._finish()

    def _finish(self) -> tuple[Outgoing, ...]:
        """Tell all what is common, or only that it is withheld."""
        count = sum(self._found)
        is_revealed = self.terms.rows_min <= count <= self.terms.rows_max
        self.shared_key = derive(self._root, "shared key")
        verdict = pack_verdict(count if is_revealed else None) + self.shared_key
        outgoing = tuple(self._sealed(peer, "verdict", verdict) for peer in self.terms.passives)
        if not is_revealed:
            self.withheld = True
            return outgoing
        self.result = marked(self._is_common, self._room)
        size = PAIR_BYTES * count
        for peer in self.terms.passives:
            outgoing += self._send(peer, "common", self._buckets, size, self._read_common)
        return outgoing

    def _read_common(self, start: int, stop: int) -> bytes:
        """Part of the common elements, sorted bucket by bucket."""
        parts, offset = [], 0
        for bucket, found in enumerate(self._found):
            end = offset + PAIR_BYTES * found
            if start < end and offset < stop:
                members = self._members[bucket]
                shown = pack_sorted(self._elements[members[self._is_common[members]]])
                parts.append(shown[max(0, start - offset) : stop - offset])
            offset = end
        return b"".join(parts)

    moves = {"choose": _on_choose, "answer": _on_answer, "credit": Session._on_credit}  # noqa: RUF012
