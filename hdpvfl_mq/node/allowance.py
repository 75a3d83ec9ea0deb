"""Limits the bytes that a peer can make this node record without advancing its role.

It owns the count and its limits; it knows no stream and no clock. Nothing else limits how many
hellos, ledger heads or answers to a pause a member sends, and each is recorded: without a limit it
could fill this node's disk.
"""

from __future__ import annotations

from collections import Counter

from hdpvfl_mq.errors import CheatingError
from schemas.ids import COORDINATOR, PartyId
from schemas.messages import ARRAY_BYTES, Message, RoundReport
from schemas.scoring import ScoreQuery

# How many of these there are is limited by the plan or by an account, if the role does something
# with them.
PLANNED = frozenset({*ARRAY_BYTES, "round_plan"})
# Of one party, until `forgive`.
IDLE_BYTES_MAX = 64 * 2**20
IDLE_BYTES_ALL = 2**30  # of all parties; above it, each has only its own room:
IDLE_BYTES_EACH = 2**20
# The coordinator passes on what all members send, each within its own limit.
IDLE_BYTES_COORDINATOR = 2**30


class Allowance:
    """The bytes of each peer that were refused or changed nothing."""

    def __init__(self) -> None:
        self._idle: Counter[PartyId] = Counter()
        self._rounds: dict[PartyId, int] = {}  # the most that each peer has reported as done
        self._asked: tuple[PartyId, int, int] | None = None  # a query of scores: bytes, places

    def __getitem__(self, party: PartyId) -> int:
        return self._idle[party]

    def note(self, party: PartyId, size: int) -> None:
        """Count a recorded envelope that brings the role no further."""
        self._idle[party] += size

    def note_taken(self, party: PartyId, message: Message, size: int, *, is_moved: bool) -> None:
        """Count an envelope that the role took, unless a plan or an account
        already limits that kind.
        """
        if not is_moved or not (message.kind in PLANNED or self._is_progress(party, message)):
            self.note(party, size)
        elif isinstance(message, ScoreQuery):
            self._asked = (party, size, message.places.shape[0])

    def note_charged(self, refused: bytes) -> None:
        """Count the part of the last query that the account of scored people refuses.

        The account limits only what it grants; people whom it refuses can be asked for without end.
        """
        if self._asked is not None:
            party, size, places = self._asked
            self.note(party, size * int.from_bytes(refused, "big").bit_count() // max(1, places))
        self._asked = None

    def _is_progress(self, party: PartyId, message: Message) -> bool:
        """Whether a report covers rounds that no earlier report covered."""
        if not isinstance(message, RoundReport):
            return False
        before = self._rounds.get(party, -1)
        self._rounds[party] = max(before, message.rounds_done)
        return message.rounds_done > before

    def check(self, party: PartyId) -> None:
        """CheatingError if a peer is above its limit."""
        if self._idle[party] > self._limit(party):
            raise CheatingError(
                f"{party} has sent {self._idle[party]} bytes that were refused or had no effect: "
                "over the limit"
            )

    def _limit(self, party: PartyId) -> int:
        if party == COORDINATOR:
            return IDLE_BYTES_COORDINATOR
        is_full = self._idle.total() - self._idle[COORDINATOR] > IDLE_BYTES_ALL
        return min(IDLE_BYTES_EACH, IDLE_BYTES_MAX) if is_full else IDLE_BYTES_MAX

    def forget(self, party: PartyId) -> None:
        """Drop a peer's count."""
        self._idle.pop(party, None)

    def forgive(self) -> None:
        """Reset all counts: otherwise a long honest run would reach the limit."""
        self._idle.clear()
