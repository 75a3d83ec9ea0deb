"""Peers that acknowledge nothing while others do, and when to send to them again.

It owns a clock for each such peer that no other peer's answers and no new envelope put off. While a
peer is silent, its first envelope is sent again as a probe; once it answers, all that it missed
follows, one window after the other. It reads no clock.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from hdpvfl_mq.wire.sequence import EARLY_MAX, Position
from schemas.ids import PartyId

LAG_S = 1.0  # silent for this long while others answer
LOOKS = 16.0  # so often the peers of a crowd are looked at in the time that one may take
PROBE_S = 2.0  # a silent peer gets its first envelope again this often, below every other limit
ASKED_S = 10.0  # a peer that asks again is sent to again this much later, also in a crowd
LAG_BYTES_PER_S = 2e6  # bulk waits longer: its receiver works before it acknowledges
LAG_BULK_MAX_S = 60.0
SLOWER_THAN_OTHERS = 2.0  # a member of a crowd may take so many times as long as any other has


class Streams(Protocol):
    """What this module reads from a mailbox."""

    @property
    def waiting_peers(self) -> tuple[PartyId, ...]: ...

    def position(self, party: PartyId) -> Position: ...


@dataclass
class _Lag:
    acknowledged: int
    at: float
    since: float  # when this was noted
    resent: int = 0  # number of the last envelope sent again; 0 if none was
    missed: int = 0  # number of the last one sent while the peer was silent; later ones get there
    wait_s: float = 0.0  # between the last two copies


@dataclass
class Lagging:
    """The clocks of one node."""

    check_at: float | None = None
    pace_s: float = 0.0
    longest_s: float = 0.0
    lags: dict[PartyId, _Lag] = field(default_factory=dict)
    behind: set[PartyId] = field(default_factory=set)  # those that were sent to again
    # When a peer may ask again. Not put off by copies that are due only now and then.
    asked_at: dict[PartyId, float] = field(default_factory=dict)
    # The longest that a peer has taken to answer. While the answers of a crowd still come in, those
    # that are missing are late, not lost, and a copy for one of them goes to many.
    answer_s: float = 0.0

    def restart(self, now: float) -> None:
        """Everything was sent again to all peers just now."""
        self.check_at = now + LAG_S
        self.lags.clear()
        self.behind.clear()

    def was_busy(self, busy_s: float) -> None:
        """Nothing was read for so long: no peer has taken that time to answer."""
        if self.check_at is not None:
            self.check_at += busy_s
        for lag in self.lags.values():
            lag.at += busy_s
            lag.since += busy_s

    def idle(self) -> None:
        """Every peer has acknowledged everything."""
        if self.check_at is not None:
            self.answer_s /= 2.0  # what was slow once need not stay slow
        self.check_at = None
        self.lags.clear()
        self.behind.clear()
        self.asked_at.clear()

    def due(
        self, mailbox: Streams, now: float, *, pace_s: float, longest_s: float = 0.0
    ) -> dict[PartyId, int]:
        """Peers to send to again now, and how many envelopes each gets.

        `pace_s` is how long any peer may take at present; a crowd takes longer, and its members are
        sent to more and more slowly, down to once in `longest_s`.
        """
        self.pace_s, self.longest_s = pace_s, longest_s
        found: dict[PartyId, int] = {}
        for party in sorted(self.behind):
            if (count := self._next_window(party, mailbox.position(party), now)) > 0:
                found[party] = count
        if self.check_at is None:
            self.check_at = now + LAG_S
        elif self.check_at <= now:
            self.check_at = now + max(LAG_S, pace_s / LOOKS)
            found |= self._scan(mailbox, now)
        return found

    def asked(self, party: PartyId, at: Position, now: float) -> dict[PartyId, int]:
        """How much to send again to a peer that has acknowledged the same envelope twice.

        The first time at once. After that the peer must first acknowledge all copies it was sent,
        or wait: otherwise each single acknowledgement would draw a whole window of copies.
        """
        lag = self.lags.get(party)
        has_answered = lag is None or at.acknowledged >= lag.resent
        if not has_answered and now < self.asked_at.get(party, 0.0):
            return {}
        self.asked_at[party] = now + min(self._wait_s(PROBE_S, at), ASKED_S + self._work_s(at))
        return {party: self._again(party, at, now, count=EARLY_MAX)}

    def cut_short(self, party: PartyId, at: Position, count: int, now: float) -> None:
        """Only so many copies for a peer found room: the others follow once it has these."""
        self._again(party, at, now, count=max(1, count))

    def _next_window(self, party: PartyId, at: Position, now: float) -> int:
        """How many envelopes follow for a peer that has acknowledged the copies it was sent.

        What was sent after its answer is no copy: in a run that goes on there is always such an
        envelope, and each would be sent twice for the rest of the run.
        """
        lag = self.lags[party]
        if at.acknowledged < lag.resent:
            lag.missed = at.sent
            return 0
        if at.acknowledged >= lag.missed:
            self._drop(party)
            return 0
        missed = lag.missed
        count = self._again(party, at, now, count=min(EARLY_MAX, missed - at.acknowledged))
        self.lags[party].missed = missed
        return count

    def _scan(self, mailbox: Streams, now: float) -> dict[PartyId, int]:
        found: dict[PartyId, int] = {}
        waiting = mailbox.waiting_peers
        for party in self.lags.keys() - set(waiting):
            self._answered(self.lags[party], now)
            self._drop(party)
        silent = []
        for party in waiting:
            at, lag = mailbox.position(party), self.lags.get(party)
            if lag is None or lag.acknowledged != at.acknowledged:
                self._answered(lag, now)
                resent, missed = (lag.resent, lag.missed) if lag else (0, 0)
                wait_s = self._wait_s(LAG_S, at)
                self.lags[party] = _Lag(at.acknowledged, now + wait_s, now, resent, missed)
            else:
                silent.append((party, at, lag))
        for party, at, lag in silent:
            if self._is_late(at, lag, now):
                is_silent = lag.resent > 0
                found[party] = self._again(party, at, now, count=1 if is_silent else EARLY_MAX)
        return found

    def _again(self, party: PartyId, at: Position, now: float, *, count: int) -> int:
        before = self.lags.get(party)
        wait_s = self._wait_s(PROBE_S, at)
        if before is not None and before.acknowledged == at.acknowledged:
            wait_s = max(wait_s, min(2 * before.wait_s, self.longest_s))
        lag = _Lag(at.acknowledged, now + wait_s, now, missed=at.sent, wait_s=wait_s)
        lag.resent = min(at.sent, at.acknowledged + count)
        self.lags[party] = lag
        self.behind.add(party)
        return count

    def _is_late(self, at: Position, lag: _Lag, now: float) -> bool:
        """Whether a peer takes longer than it may, and in a crowd longer than the others."""
        # As long as nobody has answered, nobody is later than the others.
        answer_s = self.answer_s or self.longest_s
        patience_s = min(self.longest_s, SLOWER_THAN_OTHERS * answer_s)
        # Later envelopes would wait for a lost one, and their receiver takes that for withholding.
        is_alone = at.sent == at.acknowledged + 1
        return lag.at <= now and not (is_alone and now < lag.since + patience_s)

    def _answered(self, lag: _Lag | None, now: float) -> None:
        if lag is not None and not lag.resent:  # else it may have been away, not slow
            self.answer_s = max(self.answer_s, now - lag.since)

    def _wait_s(self, shortest_s: float, at: Position) -> float:
        """How long a peer may take; it may have to work on its first envelope before it answers."""
        return max(shortest_s, self.pace_s) + self._work_s(at)

    def _work_s(self, at: Position) -> float:
        return min(LAG_BULK_MAX_S, at.first_bytes / LAG_BYTES_PER_S)

    def _drop(self, party: PartyId) -> None:
        self.lags.pop(party, None)
        self.behind.discard(party)
