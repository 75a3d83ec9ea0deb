"""The active party's session. Owns its moves: ask every passive party, match, tell what is common.

Buckets go one after the other, all passive parties in step, so that memory is that of one bucket.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from hdpvfl_mq.errors import PeerError
from hdpvfl_mq.psi.blocks import Outgoing, read_slice
from hdpvfl_mq.psi.elements import fill_bucket
from hdpvfl_mq.psi.match import PAIR_BYTES, Tally, pack_verdict
from hdpvfl_mq.psi.oprf import Asker
from hdpvfl_mq.psi.session import Block, Session, Terms
from hdpvfl_mq.psi.stream import derive


class ActiveSession(Session):
    """Learns which of its ids all passive parties have, and tells them."""

    def __init__(self, terms: Terms, ids: Sequence[bytes], secret: bytes, asker: Asker) -> None:
        super().__init__(terms, terms.active, ids, secret, asker)
        self._asker = asker
        self._chosen: set[str] = set()
        self._bucket = -1
        self._found: list[NDArray[np.intp]] = []

    def _begin(self) -> tuple[Outgoing, ...]:
        return tuple(
            self._sealed(peer, "open", self._asker.opening(peer)) for peer in self.terms.passives
        )

    def _on_choose(self, block: Block) -> tuple[Outgoing, ...]:
        if block.sender in self._chosen:
            raise PeerError(f"{block.sender} chose twice, stage choose")
        self._asker.accept_choice(block.sender, block.payload)
        self._chosen.add(block.sender)
        return self._start_bucket() if len(self._chosen) == len(self.terms.passives) else ()

    def _start_bucket(self) -> tuple[Outgoing, ...]:
        self._bucket += 1
        real = self._elements[self._members[self._bucket]]
        dummies = derive(self._root, "dummies", self._bucket)
        filled = fill_bucket(real, self._capacity(self.me), dummies)
        self._asker.prepare(self._bucket, filled)
        self._tally = Tally(filled, len(self.terms.passives))
        outgoing: tuple[Outgoing, ...] = ()
        for peer in self.terms.passives:
            self._expect(peer, "answer", self._bucket, self._answer_bytes(peer))
            read = partial(self._asker.query, peer)
            outgoing += self._send(peer, "query", self._bucket, self._query_bytes, read)
        return outgoing

    def _on_answer(self, block: Block) -> tuple[Outgoing, ...]:
        if block.sender in self._sending and not self._sending[block.sender].is_sent:
            raise PeerError(f"{block.sender} answered before the query was over, stage answer")
        whole, outgoing = self._take(block)
        if whole is None:
            return outgoing
        reply_bytes = self._asker.reply_bytes(self._capacity(self.me))
        outputs = self._asker.outputs(block.sender, whole[:reply_bytes])
        seed = derive(self.terms.public_seed, "answer store", block.sender, self._bucket)
        self._tally.add(outputs, whole[reply_bytes:], self._capacity(block.sender), seed)
        if self._incoming:
            return ()
        members = self._members[self._bucket]
        self._found.append(members[self._tally.common()[: len(members)]])
        return self._start_bucket() if self._bucket + 1 < self._buckets else self._finish()

    def _finish(self) -> tuple[Outgoing, ...]:
        """Tell all what is common, in the order of the hashes; or only that it is withheld."""
        common = np.sort(np.concatenate(self._found))
        is_revealed = self.terms.rows_min <= len(common) <= self.terms.rows_max
        verdict = pack_verdict(len(common) if is_revealed else None)
        outgoing = tuple(self._sealed(peer, "verdict", verdict) for peer in self.terms.passives)
        if not is_revealed:
            self.withheld = True
            return outgoing
        self.result = common
        shown = self._elements[common]
        shown = shown[np.lexsort((shown[:, 1], shown[:, 0]))]
        read = partial(read_slice, shown.tobytes())
        for peer in self.terms.passives:
            outgoing += self._send(peer, "common", self._buckets, PAIR_BYTES * len(common), read)
        return outgoing

    moves = {"choose": _on_choose, "answer": _on_answer, "credit": Session._on_credit}  # noqa: RUF012
