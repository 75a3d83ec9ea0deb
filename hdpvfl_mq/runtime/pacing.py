"""When to speak without having heard: timers, late acknowledgements, sending again.

It owns the deadlines of one pump; it reads no clock, `now` comes from the caller, so sockets and
simulation share it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hdpvfl_mq.node.mailbox import Mailbox
from hdpvfl_mq.node.ports import Turn
from schemas.records import TimerFired

ACK_DELAY_S = 0.02  # most acknowledgements ride on an answer; the rest wait this long
RESEND_S = 0.5
RESEND_BYTES_PER_S = 2e6  # bulk gets this much longer: its receiver works before it acknowledges
BULK_MAX_S = 4.5
RESEND_MAX_S = 1.5  # a peer that comes back after a crash waits no longer than this for its frames
# But for bulk: copies of it fill the memory of a peer that works for minutes before it reads them.
BULK_RESEND_MAX_S = 60.0
GREET_S = 5.0  # after this long without a word, say hello again: the broker may have forgotten


@dataclass(frozen=True)
class Due:
    """What the clock asks for."""

    fired: tuple[TimerFired, ...]
    acknowledge: bool
    resend: bool
    greet: bool


@dataclass
class Pacing:
    """The deadlines of one node."""

    timers: dict[str, float] = field(default_factory=dict)
    acknowledge_at: float | None = None
    resend_at: float | None = None
    resend_s: float = RESEND_S
    bulk_s: float = 0.0
    acknowledged: int = 0
    greet_at: float | None = None

    def after_turn(self, mailbox: Mailbox, turn: Turn, now: float) -> None:
        """Set deadlines by what a turn has left open."""
        self.greet_at = None if mailbox.greeting is None else now + GREET_S
        acknowledged = mailbox.acknowledged  # a sum over all peers, so once a turn
        for arm in turn.arm:
            self.timers[arm.timer] = now + arm.delay_ms / 1000
        if not mailbox.owes:
            self.acknowledge_at = None
        elif self.acknowledge_at is None:
            self.acknowledge_at = now + ACK_DELAY_S
        if not mailbox.has_unacknowledged:
            self.resend_at = None
        elif acknowledged > self.acknowledged or self.resend_at is None or turn.send:
            if turn.send:
                size = sum(len(frame) for frames in turn.send for frame in frames)
                # Bulk of the turns before is likely to be on its way still.
                self.bulk_s = max(size / RESEND_BYTES_PER_S, self.bulk_s / 2)
            self.resend_s = RESEND_S + min(BULK_MAX_S, self.bulk_s)
            self.resend_at = now + self.resend_s
        self.acknowledged = acknowledged

    def due(self, now: float) -> Due:
        """Take what has come due; sending again slows down while nothing gets through."""
        fired = tuple(sorted(name for name, at in self.timers.items() if at <= now))
        for name in fired:
            del self.timers[name]
        acknowledge = self.acknowledge_at is not None and self.acknowledge_at <= now
        if acknowledge:
            self.acknowledge_at = None
        resend = self.resend_at is not None and self.resend_at <= now
        if resend:
            longest_s = BULK_RESEND_MAX_S if self.bulk_s >= BULK_MAX_S else RESEND_MAX_S
            self.resend_s = max(self.resend_s, min(longest_s, self.resend_s * 2))
            self.resend_at = now + self.resend_s
        greet = self.greet_at is not None and self.greet_at <= now
        if greet:
            self.greet_at = now + GREET_S
        return Due(tuple(TimerFired(timer=name) for name in fired), acknowledge, resend, greet)

    def next(self) -> float | None:
        """The next moment at which `due` has something."""
        moments = [*self.timers.values()]
        others = (self.acknowledge_at, self.resend_at, self.greet_at)
        moments += [at for at in others if at is not None]
        return min(moments, default=None)
