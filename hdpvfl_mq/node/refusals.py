"""Refused frames and missing envelopes that the next commit records.

It owns their notes and how many one process writes; it knows no role and no journal.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable

from hdpvfl_mq.machine import OffenceCause
from hdpvfl_mq.wire.codec import Frames
from schemas.base import printable
from schemas.ids import PartyId
from schemas.records import TurnedAway, Withheld

# Records of refused frames that one process writes. Each peer whose fault is proved has room of its
# own, which nobody may use up, or the role would not learn of the fault and the run would wait. For
# more than that there is room for all peers together, and as much for frames that prove no fault.
NOTED_EACH = 100
NOTED_MAX = 10_000
REPEATED_MAX = 20  # of a peer to whose fault the role has reacted already
_REASON_MAX = 500


class Refusals:
    """What one node has refused."""

    def __init__(self, armed: Callable[[], Iterable[str]]) -> None:
        """`armed` gives the timers that are set: one for each fault the role has reacted to."""
        self.waiting: list[TurnedAway | Withheld] = []  # for a commit
        self.noted: Counter[PartyId | None] = Counter()  # refused frames recorded so far
        self.count = 0  # refused frames and illegal moves
        self._armed = armed
        self._named: set[tuple[PartyId, OffenceCause]] = set()  # in `waiting`

    def turned_away(self, frames: Frames, reason: str, by: PartyId | None) -> None:
        """Note refused frames; `by` is a peer that signed something false."""
        if self._has_room(by, "offence"):
            digest = hashlib.sha256(b"".join(frames[:4])).digest()
            reason = printable(reason[:_REASON_MAX])
            self.waiting.append(TurnedAway(reason=reason, digest=digest, party=by))

    def withheld(self, party: PartyId, reason: str) -> None:
        """Note that a peer keeps something back."""
        if self._has_room(party, "missing"):
            self.waiting.append(Withheld(party=party, reason=printable(reason[:_REASON_MAX])))

    def take(self) -> list[TurnedAway | Withheld]:
        """Take the notes that no commit has recorded."""
        taken, self.waiting = self.waiting, []
        self._named.clear()
        return taken

    def _has_room(self, party: PartyId | None, cause: OffenceCause) -> bool:
        self.count += 1
        has_room = self._may_note(party, cause)
        self.noted[party] += has_room
        return has_room

    def _may_note(self, party: PartyId | None, cause: OffenceCause) -> bool:
        noted = self.noted[party]
        if party is None:
            return noted < NOTED_MAX
        if self._is_known(party, cause):
            return noted < REPEATED_MAX
        return noted < NOTED_EACH or self._noted_above_own_room() < NOTED_MAX

    def _noted_above_own_room(self) -> int:
        return sum(max(0, n - NOTED_EACH) for party, n in self.noted.items() if party is not None)

    def _is_known(self, party: PartyId, cause: OffenceCause) -> bool:
        if (party, cause) in self._named:
            return True
        self._named.add((party, cause))
        return any(timer.startswith(f"{cause}:{party}:") for timer in self._armed())
