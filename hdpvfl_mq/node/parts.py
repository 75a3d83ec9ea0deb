"""The exchange of parts: asks for those an arrived envelope lists, and serves what peers ask for.

It owns which parts are on their way; it knows no role, no signature and no socket. A stream stops
at an envelope until all its parts are stored, so a role sees a message whole or not at all. Nothing
here is recorded: after a restart the envelope arrives again, and only what is not stored is asked
for. Memory holds at most the parts of one turn.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice

from hdpvfl_mq.errors import CheatingError, IntegrityError, PeerError
from hdpvfl_mq.node.ports import RecordStore
from hdpvfl_mq.wire.codec import Frames
from hdpvfl_mq.wire.parts import PartList, is_in_parts
from schemas.delivery import MAX_PARTS_ASKED, Part, PartRequest
from schemas.ids import PartyId
from schemas.tensor import Tensor

# On their way to this node from all peers together; one more for each peer that has none.
WINDOW_PARTS = MAX_PARTS_ASKED
# A peer may leave this many requests unanswered while it sends other messages. One is due every few
# seconds, so that is minutes: an honest peer's link may lose frames or be full.
UNSERVED_MAX = 25
LATE_FROM = 2  # requests without a part, about nine seconds; the status then says for whom it waits
PROBE_FROM = 3  # requests without a part; the next ones ask for one part only


@dataclass(eq=False)
class _Incoming:
    """The parts of one peer's next envelope."""

    sequence: int
    parts: PartList
    missing: dict[int, None]  # in order
    asked: set[int] = field(default_factory=set)
    unserved: int = 0  # requests in a row after which the peer spoke, but served no part
    is_served: bool = False  # since the last request that was due
    is_heard: bool = False

    def probe(self) -> PartRequest:
        """Ask for one part: a window of copies would fill the link of a peer that is slow."""
        first = next(iter(self.missing))
        self.asked.add(first)
        return PartRequest(sequence=self.sequence, numbers=(first,))

    def judge(self) -> bool:
        """Count an unanswered request; True if the peer is over the limit."""
        if self.is_served:
            self.unserved = 0
        elif self.is_heard:  # else it may be restarting
            self.unserved += 1
        self.is_served = self.is_heard = False
        return self.unserved >= UNSERVED_MAX

    def ask(self, window: int, room: int) -> PartRequest | None:
        """Ask for more once half of the window is free; `room` is what other peers leave of it."""
        if len(self.asked) > window // 2 or len(self.asked) == len(self.missing):
            return None
        free = (number for number in self.missing if number not in self.asked)
        at_least = 0 if self.asked else 1
        numbers = tuple(islice(free, max(at_least, min(window - len(self.asked), room))))
        self.asked.update(numbers)
        return PartRequest(sequence=self.sequence, numbers=numbers) if numbers else None


class PartExchange:
    """Parts on their way to and from one node."""

    def __init__(self, store: RecordStore) -> None:
        self._store = store
        self._incoming: dict[PartyId, _Incoming] = {}
        self._wanted: dict[PartyId, tuple[PartRequest, PartList]] = {}
        self._fresh: list[tuple[bytes, bytes]] = []

    # -- in -----------------------------------------------------------------------------------

    def expect(self, sender: PartyId, sequence: int, frames: Frames) -> bool:
        """Whether all parts of a peer's next envelope are stored; else they are asked for."""
        known = self._incoming.get(sender)
        if known is None or known.sequence != sequence:
            parts = PartList.of_frames(frames)
            missing = dict.fromkeys(self._store.missing_parts(parts))
            known = self._incoming[sender] = _Incoming(sequence, parts, missing)
        if known.missing:
            return False
        del self._incoming[sender]
        return True

    def is_whole(self, sender: PartyId, sequence: int, frames: Frames, limit: int | None) -> bool:
        """Whether the role may have an envelope in parts; the step refuses one above the limit.

        Before the plan is known there is no limit: the envelope waits, and none of its parts is
        asked for.
        """
        if limit is None:
            return False
        is_too_large = PartList.of_frames(frames).sizes.bytes > limit
        return is_too_large or self.expect(sender, sequence, frames)

    def whole(self, frames: Frames, limit: int | None) -> memoryview:
        """The whole array of an envelope in parts; PeerError if the plan has no such release."""
        parts = PartList.of_frames(frames)
        if parts.sizes.bytes > (limit or 0):
            raise PeerError(
                f"a release of {parts.sizes.bytes} bytes, where the plan has {limit or 0}"
            )
        return self._store.joined(parts)

    def take(self, sender: PartyId, message: Part) -> None:
        """Take a part; CheatingError if it is not what its sender's envelope lists."""
        known = self._incoming.get(sender)
        if known is None or known.sequence != message.sequence:
            raise PeerError(f"a part of envelope {message.sequence}, which waits for none")
        number, data = message.number, bytes(message.tensor.data)
        try:
            known.parts.check(number, data)
        except PeerError as false:
            raise CheatingError(str(false)) from None
        if number not in known.asked:
            raise PeerError(f"part {number}, which was not asked for")
        known.asked.discard(number)
        known.missing.pop(number, None)
        known.is_served = True
        self._fresh.append((known.parts.digests[number], data))

    def heard(self, sender: PartyId) -> None:
        """Note that a peer sends something that is not a part."""
        if (known := self._incoming.get(sender)) is not None:
            known.is_heard = True

    def unserved(self) -> tuple[PartyId, ...]:
        """Peers that speak but serve no part; call it once whenever a request is due again."""
        return tuple(party for party, each in sorted(self._incoming.items()) if each.judge())

    def is_served(self, peer: PartyId) -> bool:
        """Whether the parts of a peer's envelope are on their way, however slowly."""
        known = self._incoming.get(peer)
        return known is not None and (known.is_served or known.unserved < UNSERVED_MAX)

    def store(self) -> int:
        """Store what was taken, durably; returns the number of parts."""
        fresh, self._fresh = self._fresh, []
        if fresh:
            self._store.keep_parts(fresh)
        return len(fresh)

    @property
    def is_busy(self) -> bool:
        """Whether parts are missing here or wanted by a peer."""
        return bool(self._incoming or self._wanted)

    @property
    def is_asking(self) -> bool:
        """Whether parts are missing."""
        return bool(self._incoming)

    def waiting_for(self) -> dict[PartyId, tuple[int, int]]:
        """For each peer, how many parts of its envelope are here, and how many there are."""
        return {
            party: (len(each.parts) - len(each.missing), len(each.parts))
            for party, each in sorted(self._incoming.items())
        }

    @property
    def late(self) -> tuple[PartyId, ...]:
        """Peers that have left some requests in a row without any part; the run waits for them."""
        late = (party for party, each in self._incoming.items() if each.unserved >= LATE_FROM)
        return tuple(sorted(late))

    def requests(self, *, again: bool = False) -> Iterator[tuple[PartyId, PartRequest]]:
        """Requests for missing parts; `again` if those on their way may be lost."""
        window = max(1, WINDOW_PARTS // max(1, len(self._incoming)))
        probed = [each for each in self._incoming.values() if again and each.unserved >= PROBE_FROM]
        for incoming in self._incoming.values() if again else ():
            if incoming not in probed:
                incoming.asked.clear()
        for party, incoming in sorted(self._incoming.items()):
            if incoming in probed:
                yield party, incoming.probe()
                continue
            room = WINDOW_PARTS - sum(len(each.asked) for each in self._incoming.values())
            if (request := incoming.ask(window, room)) is not None:
                yield party, request

    # -- out ----------------------------------------------------------------------------------

    def want(self, peer: PartyId, request: PartRequest, frames: Frames | None) -> None:
        """Note a peer's request; `frames` is the envelope, if it waits for its acknowledgement."""
        if frames is None or not is_in_parts(frames):
            raise PeerError(f"asks for parts of envelope {request.sequence}, which waits for none")
        parts = PartList.of_frames(frames)
        if max(request.numbers) >= len(parts):
            raise PeerError(f"asks for part {max(request.numbers)} of {len(parts)}")
        numbers = dict.fromkeys(request.numbers)
        earlier = self._wanted.get(peer)
        if earlier is not None and earlier[0].sequence == request.sequence:  # in the same turn
            numbers |= dict.fromkeys(earlier[0].numbers)
        first = tuple(islice(numbers, MAX_PARTS_ASKED))  # the newest request goes first
        self._wanted[peer] = PartRequest(sequence=request.sequence, numbers=first), parts

    def served(self) -> Iterator[tuple[PartyId, Part]]:
        """The parts that each peer has asked for since the last turn, once.

        They take turns, so that a link with little room serves each peer.
        """
        wanted, self._wanted = sorted(self._wanted.items()), {}
        return (
            (peer, self._part(request.sequence, parts, request.numbers[turn]))
            for turn in range(MAX_PARTS_ASKED)
            for peer, (request, parts) in wanted
            if turn < len(request.numbers)
        )

    def _part(self, sequence: int, parts: PartList, number: int) -> Part:
        stored = self._store.part(parts.digests[number])
        if stored is None:
            raise IntegrityError(f"part {number} of a release that was sent is missing")
        tensor = Tensor(dtype="|u1", shape=(len(stored),), data=stored)
        return Part(sequence=sequence, number=number, tensor=tensor)
