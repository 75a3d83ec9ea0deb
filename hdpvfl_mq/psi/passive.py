"""A passive party's session. Owns its moves: answer queries, then learn what is common."""

from __future__ import annotations

from functools import partial

from hdpvfl_mq.arrays.chunked import marked, marks
from hdpvfl_mq.errors import PeerError
from hdpvfl_mq.psi.blocks import Outgoing, read_slice
from hdpvfl_mq.psi.elements import fill_bucket, find_pairs, split_buckets
from hdpvfl_mq.psi.match import PAIR_BYTES, pack_sorted, pack_store, read_verdict, zero_share
from hdpvfl_mq.psi.methods import Function
from hdpvfl_mq.psi.oprf import Answerer
from hdpvfl_mq.psi.session import Block, OwnSet, Session, Terms
from hdpvfl_mq.psi.stream import Words, derive

VERDICT_BYTES = 8 + 32  # the number of common ids, and the key all parties share


class PassiveSession(Session):
    """Answers for its ids, then learns which of them are common."""

    _answerer: Answerer

    def __init__(self, terms: Terms, me: str, own: OwnSet, secret: bytes) -> None:
        super().__init__(terms, me, own, secret)
        self._is_open = False
        self._is_answered = False
        self._is_judged = False

    def _prepare(self, function: Function) -> None:
        self._lengths = self._answerer = function.answerer(self.me)

    def _begin(self) -> tuple[Outgoing, ...]:
        return ()

    def _on_open(self, block: Block) -> tuple[Outgoing, ...]:
        if self._is_open:
            raise PeerError(f"{block.sender} opened twice, stage open")
        choice = self._answerer.choice(block.payload)
        self._is_open = True
        self._expect(block.sender, "query", 0, self._query_bytes)
        return (self._sealed(block.sender, "choose", choice),)

    def _on_query(self, block: Block) -> tuple[Outgoing, ...]:
        whole, outgoing = self._take(block)
        if whole is None:
            return outgoing
        bucket = block.meta[0]
        answer = self._answer(bucket, whole.tobytes())
        self._taken(block.sender)
        self._is_answered = bucket + 1 == self._buckets
        if not self._is_answered:
            self._expect(block.sender, "query", bucket + 1, self._query_bytes)
        read = partial(read_slice, answer)
        return self._send(block.sender, "answer", bucket, len(answer), read)

    def _answer(self, bucket: int, query: bytes) -> bytes:
        real = self._elements[self._members[bucket]]
        dummies = derive(self._root, "dummies", bucket)
        filled = fill_bucket(real, self._capacity(self.me), dummies)
        count = self._capacity(self.terms.active)
        reply, outputs = self._answerer.answer(bucket, query, count, filled)
        others = [self._links[p].shared_key for p in self.terms.passives if p != self.me]
        if not others:
            return reply + pack_sorted(outputs)
        values = outputs ^ zero_share(filled, others, bucket)
        seed = derive(self._seed, "answer store", self.me, bucket)
        return reply + pack_store(values, filled, seed, derive(self._root, "store", bucket))

    def _on_verdict(self, block: Block) -> tuple[Outgoing, ...]:
        """The number of common ids, or that it is withheld; comes once, after the last answer."""
        is_due = self._is_answered and not self._sending[block.sender]
        if not is_due or self._is_judged or len(block.payload) != VERDICT_BYTES:
            raise PeerError(f"{block.sender} sent a verdict out of place, stage verdict")
        count, shared_key = read_verdict(block.payload[:8]), block.payload[8:]
        if count is None:
            self.withheld = True
        elif self.terms.rows_min <= count <= min(self.terms.rows_max, len(self._elements)):
            self._expect(block.sender, "common", self._buckets, PAIR_BYTES * count, self._room)
        else:
            raise PeerError(f"{block.sender} claims an impossible number of ids, stage verdict")
        self._is_judged, self.shared_key = True, shared_key
        return ()

    def _on_common(self, block: Block) -> tuple[Outgoing, ...]:
        whole, outgoing = self._take(block)
        if whole is None:
            return outgoing
        shown: Words = whole.view("<u8").reshape(-1, 2)
        is_common = marks(len(self._elements), self._room)
        by_bucket = split_buckets(shown, self._buckets, self._room)
        for wanted, own in zip(by_bucket, self._members, strict=True):
            places = find_pairs(shown[wanted], self._elements[own])
            if (places < 0).any():
                raise PeerError(f"{block.sender} names ids that are not held here, stage common")
            is_common[own[places]] = True
        positions = marked(is_common, self._room)
        if len(positions) < len(shown):
            raise PeerError(f"{block.sender} names ids twice, stage common")
        self._taken(block.sender)
        self.result = positions
        return ()

    moves = {  # noqa: RUF012
        "open": _on_open,
        "query": _on_query,
        "verdict": _on_verdict,
        "common": _on_common,
        "credit": Session._on_credit,
    }
