"""Refused frames and missing envelopes that the next commit records.

It owns their notes and how many one process writes; it knows no role and no journal.
"""

from __future__ import annotations

import hashlib

from hdpvfl_mq.wire.codec import Frames
from schemas.base import printable
from schemas.ids import PartyId
from schemas.records import TurnedAway, Withheld

NOTED_MAX = 10_000  # records of refused frames that one process writes
_REASON_MAX = 500


class Refusals:
    """What one node has refused."""

    def __init__(self) -> None:
        self.waiting: list[TurnedAway | Withheld] = []  # for a commit
        self.noted = 0  # refused frames recorded so far
        self.count = 0  # refused frames and illegal moves

    def turned_away(self, frames: Frames, reason: str, by: PartyId | None) -> None:
        """Note refused frames; `by` is a peer that signed something false."""
        if self._has_room():
            digest = hashlib.sha256(b"".join(frames[:4])).digest()
            reason = printable(reason[:_REASON_MAX])
            self.waiting.append(TurnedAway(reason=reason, digest=digest, party=by))

    def withheld(self, party: PartyId, reason: str) -> None:
        """Note that a peer keeps something back."""
        if self._has_room():
            self.waiting.append(Withheld(party=party, reason=printable(reason[:_REASON_MAX])))

    def take(self) -> list[TurnedAway | Withheld]:
        """Take the notes that no commit has recorded."""
        taken, self.waiting = self.waiting, []
        return taken

    def _has_room(self) -> bool:
        self.count += 1
        if self.noted >= NOTED_MAX:
            return False
        self.noted += 1
        return True
