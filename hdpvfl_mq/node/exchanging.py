"""What reaches a node outside its streams: parts of large arrays, requests, refused frames.

It owns what a turn asks for, serves and refuses; parts.py owns which parts are on their way, and
refusals.py what is noted. It knows no role.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from hdpvfl_mq.node.parts import PartExchange
from hdpvfl_mq.node.performing import Performing
from hdpvfl_mq.node.ports import Contact, Identity, RecordStore, Turn
from hdpvfl_mq.node.refusals import Refusals
from hdpvfl_mq.wire.codec import Frames, decode_body, decode_header
from schemas.delivery import Part, PartRequest
from schemas.ids import PartyId
from schemas.records import TimerFired


class Exchanging(Performing):
    """A journal, a mailbox and the parts that peers send each other."""

    def __init__(
        self, identity: Identity, contacts: Mapping[PartyId, Contact], journal: RecordStore
    ) -> None:
        super().__init__(identity, contacts, journal)
        self.parts = PartExchange(journal)
        # Timers in `armed` that do not run: they fired when the peer withheld nothing any more. No
        # record says so, so they stay in `armed` as in a replay.
        self._resting: set[str] = set()
        # Whether a peer still withholds what this process has noted.
        self._withholds: dict[PartyId, Callable[[], bool]] = {}
        self.refusals = Refusals(lambda: self.armed.keys() - self._resting)

    def refuse(self, frames: Frames, reason: str, *, by: PartyId | None = None) -> None:
        """Record refused frames with the next commit.

        `by` is a peer that signed something false; the role learns of it.
        """
        self.refusals.turned_away(frames, reason, by)

    @property
    def has_refusals(self) -> bool:
        """Whether refused frames wait for a commit."""
        return bool(self.refusals.waiting)

    @property
    def refused(self) -> int:
        """The number of refused frames and illegal moves."""
        return self.refusals.count

    def _take(self, frames: Frames) -> None:
        header = self.mailbox.accept(frames)
        if header is None:
            if self.parts.is_asking:
                self.parts.heard(decode_header(frames).sender)
            return
        message = decode_body(header, frames)
        assert isinstance(message, Part | PartRequest)
        if isinstance(message, PartRequest):
            self.parts.heard(header.sender)
            envelope = self.mailbox.waiting_envelope(header.sender, message.sequence)
            self.parts.want(header.sender, message, envelope)
        else:
            self.parts.take(header.sender, message)

    def ask_again(self) -> tuple[Frames, ...]:
        """Requests for all missing parts: those on their way may be lost."""
        return self._requests(again=True)

    def note_unserved(self) -> None:
        """Record peers that do not answer part requests. Call it when a request is due.

        The next commit records them, like a missing envelope: the run ends unless a part comes
        within seconds.
        """
        for party in self.parts.unserved():
            self._withholds.setdefault(party, lambda: True)  # until a part comes
            self.refusals.withheld(
                party, f"{party} serves no part of a release, but sends other things"
            )

    def _note_withheld(self, party: PartyId, reason: str) -> None:
        """Note that envelopes of a peer are missing, or its acknowledgements."""
        mailbox = self.mailbox
        received, acknowledged = mailbox.received_from(party), mailbox.position(party).acknowledged

        def is_missing() -> bool:
            return mailbox.received_from(party) == received

        def is_silent() -> bool:
            return mailbox.position(party).acknowledged == acknowledged

        # Compared with the first note: a peer that catches up is refused again and again.
        self._withholds.setdefault(party, is_silent if mailbox.owes_much(party) else is_missing)
        self.refusals.withheld(party, reason)

    def _is_settled(self, event: object) -> bool:
        """Whether a timer waits for nothing any more, or has been set again in this turn."""
        again = {arm.timer for arm in self._uncommitted.arm}
        is_again = isinstance(event, TimerFired) and event.timer in again
        return is_again or self._is_answered(event)

    def _is_answered(self, event: object) -> bool:
        """Whether a timer waits for something missing of a peer that withholds nothing any more.

        It may have come without bringing the run further. A process that was started again has
        noted nothing: what is still missing is noted again.
        """
        if not isinstance(event, TimerFired) or not event.timer.startswith("missing:"):
            return False
        party = event.timer.split(":")[1]
        withholds = self._withholds.get(party)
        if withholds is not None and withholds() and not self.parts.is_served(party):
            return False
        self._withholds.pop(party, None)
        self._resting.add(event.timer)
        return True

    def _is_watched(self, name: str) -> bool:
        """Whether a timer is set whose name begins so; one that rests runs again."""
        known = [timer for timer in self.armed if timer.startswith(name)]
        resting = self._resting.intersection(known)
        self._uncommitted.arm.extend(self.armed[timer] for timer in sorted(resting))
        self._resting -= resting
        return bool(known)

    def _exchanged(self, turn: Turn, taken: int) -> Turn:
        """Add requests for missing parts, and the parts that peers asked for, to a turn."""
        if not self.parts.is_busy and not taken:
            return turn
        stamp = self._stamp()
        served = (
            self.mailbox.unnumbered(party, part, stamp) for party, part in self.parts.served()
        )
        return replace(
            turn,
            send=(*turn.send, *self._requests()),
            parts=served,
            parts_taken=taken,
            is_asking=self.parts.is_asking,
        )

    def _requests(self, *, again: bool = False) -> tuple[Frames, ...]:
        stamp = self._stamp()
        asked = self.parts.requests(again=again)
        return tuple(self.mailbox.unnumbered(party, request, stamp) for party, request in asked)
