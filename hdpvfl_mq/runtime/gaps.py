"""Gaps: envelopes that later ones of the same peer wait for.

It owns since when each is missing and when to ask for it. Each gap has clocks of its own: a member
that leaves a gap open must not delay what other peers are asked for. It reads no clock.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from schemas.ids import PartyId

# A missing envelope is asked for after this long, then more and more slowly.
LACK_S = 2.0
LACK_MAX_S = 30.0
TOGETHER_S = 1.0  # what is due this much later is asked for, too: one envelope goes to many


@dataclass(frozen=True)
class _Lack:
    number: int
    at: float  # when it is asked for
    wait_s: float


@dataclass
class Gaps:
    """The gaps in what one node receives."""

    noted: dict[PartyId, tuple[int, float]] = field(default_factory=dict)  # missing number, since
    lasting: set[PartyId] = field(default_factory=set)
    stopped: set[PartyId] = field(default_factory=set)  # those of `noted` whose envelope is here
    lacks: dict[PartyId, _Lack] = field(default_factory=dict)  # gaps that are not closed

    def stop(self, party: PartyId, number: int, now: float, wait_s: float) -> None:
        """Note an envelope that is here and must wait; it has not waited while it was missing."""
        if party not in self.stopped:
            self.noted.pop(party, None)
            self.stopped.add(party)
        self._note(party, number, now, wait_s)

    def note(self, party: PartyId, missing: int | None, now: float, wait_s: float) -> None:
        """Note a gap that lasts. A peer that sends nothing has no gap: it may be restarting."""
        self.stopped.discard(party)
        self._note(party, missing, now, wait_s)

    def _note(self, party: PartyId, missing: int | None, now: float, wait_s: float) -> None:
        number, since = self.noted.get(party, (None, now))
        if missing is None:
            self.noted.pop(party, None)
        elif missing != number:
            self.noted[party] = (missing, now)
        elif now - since >= wait_s:
            self.lasting.add(party)
            self.noted[party] = (missing, now)
            self.lacks.pop(party, None)  # ask soon again: the peer may be named in a few seconds

    def look(self, missing: Callable[[PartyId], int | None], now: float) -> None:
        """Frames arrive in the order in which they were sent, so what is missing was dropped."""
        numbers = ((party, missing(party)) for party in self.noted)
        self.lacks = {p: self._lack(p, number, now) for p, number in numbers if number is not None}

    def _lack(self, party: PartyId, number: int, now: float) -> _Lack:
        before = self.lacks.get(party)
        is_same = before is not None and before.number == number
        return before if before and is_same else _Lack(number, now + LACK_S, LACK_S)

    def take_lasting(self) -> tuple[PartyId, ...]:
        """Peers whose stream has stood still for too long."""
        lasting, self.lasting = tuple(sorted(self.lasting)), set()
        return lasting

    def due(self, now: float) -> tuple[PartyId, ...]:
        """Peers whose missing envelope is asked for now."""
        if self.next_at is None or self.next_at > now:
            return ()
        found = sorted(p for p, lack in self.lacks.items() if lack.at <= now + TOGETHER_S)
        for party in found:
            lack = self.lacks[party]
            wait_s = min(LACK_MAX_S, 2 * lack.wait_s)
            self.lacks[party] = _Lack(lack.number, now + wait_s, wait_s)
        return tuple(found)

    @property
    def next_at(self) -> float | None:
        """When a missing envelope is asked for next."""
        return min((lack.at for lack in self.lacks.values()), default=None)

    def was_busy(self, busy_s: float) -> None:
        """Nothing was read for so long: what peers have sent meanwhile is not late."""
        self.noted = {party: (number, at + busy_s) for party, (number, at) in self.noted.items()}
        self.lacks = {p: replace(lack, at=lack.at + busy_s) for p, lack in self.lacks.items()}
