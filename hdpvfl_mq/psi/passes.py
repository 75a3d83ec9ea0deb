"""Entity resolution by several keys, one after the other.

It owns the passes and who takes part. A pass is a session on one key's ids, of the rows that no
earlier key has matched. So every row is matched at most once, by the first key that all parties
share, and all parties match the same rows. After each pass every party knows which key matched whom
(docs/entity-resolution.md). A `Passes` is a value like a session, and has the same methods.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from hdpvfl_mq.arrays.chunked import Allocate, Positions, gather, marked, marks
from hdpvfl_mq.arrays.packed_marks import pack_marks, unpack_marks
from hdpvfl_mq.engine.port import Engine
from hdpvfl_mq.errors import PeerError
from hdpvfl_mq.psi.collect import NormalisedIds
from hdpvfl_mq.psi.exchange import Block, Messages
from hdpvfl_mq.psi.open import open_session
from hdpvfl_mq.psi.session import Session
from hdpvfl_mq.psi.stream import derive
from hdpvfl_mq.psi.terms import Terms
from hdpvfl_mq.psi.workspace import Signatures, Workspace

_NUMBERED = re.compile(r"k([1-9][0-9]?)_([a-z]{1,16})", re.ASCII)


class KeyedWorkspace(Workspace):
    """A party's ids of several keys."""

    def __init__(
        self,
        found: NormalisedIds,
        secret: bytes,
        *,
        allocate: Allocate,
        nonce: bytes | None = None,
        engine: Engine | None = None,
        signatures: Signatures | None = None,
    ) -> None:
        super().__init__(
            found.ids,
            secret,
            allocate=allocate,
            nonce=nonce,
            engine=engine,
            signatures=signatures,
        )
        assert found.keys is not None
        self._packed, self._rows, self._keys = found.ids, found.rows, found.keys

    def of_pass(self, number: int, taken: bytes) -> tuple[Workspace, Positions]:
        """The working data of one pass, and the places of its ids among all ids.

        Its secret depends on the rows that are left, so other ids never meet the same keys.
        """
        return self.once("pass", (number, taken), lambda: self._of_pass(number, taken))

    def _of_pass(self, number: int, taken: bytes) -> tuple[Workspace, Positions]:
        is_free = np.ones(int(self._rows.max(initial=-1)) + 1, dtype=np.bool_)
        is_free[self._rows[unpack_marks(taken, len(self._rows))]] = False
        mask = marks(len(self._rows), self.allocate)
        mask[:] = (self._keys == number) & is_free[self._rows]
        places = marked(mask, self.allocate)
        ids = self._packed.chosen(places, self.allocate)
        secret = derive(self.secret, "pass", number, taken) if number else self.secret
        part = Workspace(
            ids,
            secret,
            allocate=self.allocate,
            nonce=self.nonce,
            engine=self.engine,
            signatures=self.signatures,
        )
        return part, places


@dataclass(frozen=True, kw_only=True, repr=False)
class Passes:
    """The session of the present key, and what earlier keys have matched."""

    terms: Terms
    me: str
    keys: int
    session: Session
    taken: bytes  # which ids are common by an earlier key, packed marks
    matched: int = 0  # how many
    number: int = 0
    blocks: int = 0  # of earlier passes
    early: tuple[Block, ...] = ()  # hellos of the next pass

    @property
    def _is_last(self) -> bool:
        return self.number == self.keys - 1

    @property
    def _count(self) -> int:
        return self.matched + sum(int.from_bytes(m, "big").bit_count() for m in self.session.found)

    @property
    def is_withheld(self) -> bool:
        """Whether the number of common people is outside rows_min..rows_max."""
        is_over = self._is_last and self.session.is_found
        is_few = is_over and self._count < self.terms.rows_min
        return self.session.is_withheld or is_few or self._count > self.terms.rows_max

    @property
    def is_found(self) -> bool:
        """Whether all keys have been tried and the result counts."""
        return self._is_last and self.session.is_found and not self.is_withheld

    @property
    def is_finished(self) -> bool:
        """Whether no message follows."""
        return (self.is_found or self.is_withheld) and self.session.is_finished

    @property
    def nonces(self) -> Mapping[str, bytes]:
        """Every party's share of the public seed, as far as it has said hello."""
        return self.session.nonces

    @property
    def shared_key(self) -> bytes:
        """32 bytes all parties know and the broker does not."""
        return self.session.shared_key

    @property
    def progress(self) -> tuple[int, int]:
        """Blocks so far, and their total as far as it is known."""
        done, total = self.session.progress
        return self.blocks + done, self.blocks + total

    @property
    def waiting_for(self) -> tuple[str, ...]:
        """The peers whose next message this party needs."""
        return () if self.is_finished else self.session.waiting_for

    def place(self, peer: str) -> str:
        """How far the exchange with one peer is; the text changes when its message is taken."""
        return f"{self.number}{self.session.place(peer)}"

    def positions(self, work: Workspace) -> Positions:
        """Positions of the ids by which rows were matched, ascending, one a row."""
        return marked(self._marks(work), work.allocate)

    def start(self, work: Workspace) -> Messages:
        """The hello of the first pass."""
        return self.session.start(self._part(work)[0])

    def receive(self, work: Workspace, block: Block) -> tuple[Passes, Messages]:
        """Take one message of a peer, like a session."""
        number, plain = _plain(block)
        if number == self.number + 1 < self.keys and plain.stage == "hello":
            return self._hold(work, plain), ()
        if number != self.number:
            raise PeerError(f"{block.sender} sent a block of another key, stage {block.stage}")
        session, outgoing = self.session.receive(self._part(work)[0], plain)
        after, sent = replace(self, session=session), _numbered(number, outgoing)
        if self._is_last or not session.is_finished or after.is_withheld:
            return after, sent
        after, more = after._next(work)
        return after, (*sent, *more)

    def _next(self, work: Workspace) -> tuple[Passes, Messages]:
        """Go on with the next key."""
        number = self.number + 1
        taken = pack_marks(self._marks(work))
        part, _ = _keyed(work).of_pass(number, taken)
        session = open_session(_terms_of(self.terms, number), self.me, part)
        outgoing = session.start(part)
        for hello in self.early:
            session, more = session.receive(part, hello)
            outgoing = (*outgoing, *more)
        after = replace(
            self,
            session=session,
            taken=taken,
            matched=self._count,
            number=number,
            blocks=self.progress[0],
            early=(),
        )
        return after, _numbered(number, outgoing)

    def _hold(self, work: Workspace, hello: Block) -> Passes:
        """Keep a hello of the next pass; it is checked now, while its sender is at hand."""
        part, _ = self._part(work)
        later = open_session(_terms_of(self.terms, self.number + 1), self.me, part)
        if hello.sender not in later.peers or any(hello.sender == e.sender for e in self.early):
            raise PeerError(f"{hello.sender} sent a repeated or invalid hello for the next key")
        later.greeted_by(part, hello)
        return replace(self, early=(*self.early, hello))

    def _part(self, work: Workspace) -> tuple[Workspace, Positions]:
        return _keyed(work).of_pass(self.number, self.taken)

    def _marks(self, work: Workspace) -> NDArray[np.bool_]:
        """Which ids are common by this key or an earlier one."""
        mask = marks(len(work.ids), work.allocate)
        mask[:] = unpack_marks(self.taken, len(work.ids))
        part, places = self._part(work)
        mask[gather(places, self.session.positions(part), work.allocate)] = True
        return mask


def open_passes(terms: Terms, me: str, work: KeyedWorkspace, keys: int) -> Passes:
    """This party's session by several keys, before any message."""
    taken = bytes(-(-len(work.ids) // 8))
    part, _ = work.of_pass(0, taken)
    session = open_session(_terms_of(terms, 0), me, part)
    return Passes(terms=terms, me=me, keys=keys, session=session, taken=taken)


def _terms_of(terms: Terms, number: int) -> Terms:
    """The terms of one pass: any number of rows may match, because only their sum is limited."""
    session_id = derive(terms.session_id, "key", number)
    return replace(terms, session_id=session_id, rows_min=0)


def _keyed(work: Workspace) -> KeyedWorkspace:
    assert isinstance(work, KeyedWorkspace)
    return work


def _numbered(number: int, outgoing: Messages) -> Messages:
    """The messages of one pass, named after it; those of the first keep their names."""
    if number == 0:
        return outgoing
    return tuple(replace(each, stage=f"k{number}_{each.stage}") for each in outgoing)


def _plain(block: Block) -> tuple[int, Block]:
    """The pass a block belongs to, and the block as that pass's session knows it."""
    found = _NUMBERED.fullmatch(block.stage)
    if found is None:
        return 0, block
    return int(found[1]), replace(block, stage=found[2])
