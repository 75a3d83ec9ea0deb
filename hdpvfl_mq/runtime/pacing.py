"""When to send without a new input: timers, delayed acknowledgements, resending.

It owns the deadlines of one node. It reads no clock: the caller passes `now`, so sockets and
simulation share this code.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hdpvfl_mq.node.mailbox import Mailbox
from hdpvfl_mq.node.ports import Turn
from hdpvfl_mq.runtime.bulk import Bulk
from hdpvfl_mq.runtime.copies import Copies, Sendings
from hdpvfl_mq.runtime.gaps import Gaps
from hdpvfl_mq.runtime.lagging import Lagging
from hdpvfl_mq.wire.codec import Frames
from hdpvfl_mq.wire.sequence import EARLY_MAX
from schemas.ids import PartyId
from schemas.records import TimerFired

ACK_DELAY_S = 0.02  # most acknowledgements travel with an answer; the others wait this long
# A share that waits for those of others is answered with all of them. An acknowledgement of its own
# would cost a commit here and a record there; it waits for this part of the sender's patience.
WAITING_ACK_SHARE = 0.5
RESEND_S = 0.5
RESEND_MAX_S = 1.5  # a peer that restarts after a crash waits at most this long for its frames
# A crowd waits longer: when all parties greet each other, each has work for all before it answers,
# and copies would add to that work faster than it is done.
CROWD_PEERS = 8
CROWD_S = 0.25  # for each further peer
CROWD_ACK_S = 0.004  # for each further peer: one acknowledgement for many, far below CROWD_S
# Sending slows down to so many times this wait, so that copies stay few at any size and on any
# machine. What was lost with a connection does not wait: whoever connects says what it has.
CROWD_SLOWER = 8.0
# Later envelopes may wait this long for a missing one, which its sender resends several times. The
# sender of a large federation waits longer before it does.
GAP_S = 15.0
GAP_PEER_S = 2.0
# Whoever hears nothing of a crowd for this long asks those it waits for: no later envelope would
# show that their last one was lost.
QUIET_S = 5.0
QUIET_MAX_S = 60.0
# Several peers may ask for one envelope at a time, and each copy goes to all its receivers.
LOST_S = 5.0
QUIET_SHARE = 8.0  # a larger crowd is asked later, by this part of the time that it may take
ASK_S = 3.0  # ask again for parts of a large array when none has come for this long, then slower
ASK_MAX_S = 6.0
# A process that was busy or stopped first reads what came meanwhile, for so long: a timer that is
# late by LATE_S waits once, and no longer, or whoever keeps the process busy would stop its timers.
LATE_S, READ_S = 0.1, 1.0
GREET_S = 5.0  # send hello again after this long without an answer: the broker may have lost it


@dataclass(frozen=True)
class Due:
    """The actions that are due."""

    fired: tuple[TimerFired, ...]
    acknowledge: bool
    resend: bool
    greet: bool
    gaps: tuple[PartyId, ...] = ()  # peers whose stream has stood still for too long
    ask: bool = False  # again for the missing parts of a large array
    # Peers that were away while others answered, and how many envelopes each is sent again.
    behind: tuple[tuple[PartyId, int], ...] = ()
    asked: tuple[PartyId, ...] = ()  # those of them that have said what they have
    lacks: tuple[PartyId, ...] = ()  # peers whose missing envelope is asked for
    is_quiet: bool = False  # ask all that this node waits for


@dataclass
class Pacing:
    """The deadlines of one node."""

    timers: dict[str, float] = field(default_factory=dict)
    put_off: set[str] = field(default_factory=set)  # timers that have waited once
    is_unread: bool = False  # what came during the last turn
    acknowledge_at: float | None = None
    resend_at: float | None = None
    resend_s: float = RESEND_S
    bulk: Bulk = field(default_factory=Bulk)
    waits_since: float = 0.0  # when the wait of `resend_at` began
    crowd_s: float = 0.0
    slower: float = 1.0  # how many times longer a crowd takes than it should
    busy_until: float = 0.0  # so long a crowd that is heard may answer nothing
    acknowledged: int = 0
    greet_at: float | None = None
    gaps: Gaps = field(default_factory=Gaps)
    quiet_at: float | None = None
    quiet_s: float = QUIET_S
    ask_at: float | None = None
    ask_s: float = ASK_S
    lagging: Lagging = field(default_factory=Lagging)
    behind: dict[PartyId, int] = field(default_factory=dict)
    asked: set[PartyId] = field(default_factory=set)
    copies: Copies = field(default_factory=Copies)
    sendings: Sendings = field(default_factory=Sendings)

    def resume(self, mailbox: Mailbox, now: float) -> None:
        """Set when a node that was started after its end sends again what is not acknowledged."""
        self.crowd_s = CROWD_S * max(0, mailbox.peer_count - CROWD_PEERS)
        if mailbox.has_unacknowledged:
            self.resend_s += self.crowd_s
            self.resend_at, self.waits_since = now + self.resend_s, now

    def after_turn(self, mailbox: Mailbox, turn: Turn, now: float) -> None:
        """Set the deadlines for what is pending after a turn."""
        self.crowd_s = CROWD_S * max(0, mailbox.peer_count - CROWD_PEERS)
        self.greet_at = None if mailbox.greeting is None else now + GREET_S + self.crowd_s
        if self.crowd_s:
            self.sendings.note(turn.send, now, kept_s=LOST_S + self.crowd_s)
        acknowledged = mailbox.acknowledged
        stopped = dict(turn.stopped)
        gap_s = max(GAP_S, GAP_PEER_S * mailbox.peer_count)
        for party in {*mailbox.take_early()} - stopped.keys():
            self.gaps.note(party, mailbox.missing(party), now, gap_s)
        for party, number in stopped.items():
            self.gaps.stop(party, number, now, gap_s)
        self.gaps.look(mailbox.missing, now)
        self._after_silence(mailbox, now)
        self._after_parts(turn, now)
        if self.is_unread:
            self._put_off(now + READ_S, now + READ_S)
            self.is_unread = False
        for arm in turn.arm:
            self.timers[arm.timer] = now + arm.delay_ms / 1000
            self.put_off.discard(arm.timer)
        self._after_arrivals(mailbox, turn, now)
        self._after_answers(mailbox, now)
        if acknowledged > self.acknowledged:
            self.bulk.answered(self.waits_since, now)
        if not mailbox.has_unacknowledged:
            self.resend_at, self.slower = None, 1.0
        elif acknowledged > self.acknowledged or self.resend_at is None or turn.send:
            if turn.send:
                self.bulk.sent(turn.send)
            self.resend_s = RESEND_S + self.bulk.wait_s + self.slower * self.crowd_s
            self.resend_at, self.waits_since = now + self.resend_s, now
            self.bulk.expect(turn.send, now, self.resend_s)
            self.busy_until = now + CROWD_SLOWER * self.crowd_s
        elif now < self.busy_until:  # others of the crowd are heard, so it works
            self.resend_at = now + self.resend_s
        self.acknowledged = acknowledged

    def was_busy(self, busy_s: float) -> None:
        """This node read nothing for so long: what peers have sent meanwhile is not late."""
        self.resend_at, self.greet_at, self.quiet_at, self.ask_at = (
            None if at is None else at + busy_s
            for at in (self.resend_at, self.greet_at, self.quiet_at, self.ask_at)
        )
        self.gaps.was_busy(busy_s)
        self.lagging.was_busy(busy_s)
        self.is_unread = True

    def _put_off(self, due_by: float, until: float) -> None:
        """Let timers that are due by then fire later, each of them once."""
        late = {name for name, at in self.timers.items() if at <= due_by} - self.put_off
        self.timers |= dict.fromkeys(late, until)
        self.put_off |= late

    def _after_silence(self, mailbox: Mailbox, now: float) -> None:
        """Start to count again if something was heard; a small run resends soon enough."""
        is_heard = mailbox.owes or mailbox.acknowledged > self.acknowledged
        if not self.crowd_s:
            self.quiet_at = None
        elif is_heard or self.quiet_at is None:
            self.quiet_s = QUIET_S + self.crowd_s / QUIET_SHARE
            self.quiet_at = now + self.quiet_s

    def _after_arrivals(self, mailbox: Mailbox, turn: Turn, now: float) -> None:
        """Set when to acknowledge what no envelope has acknowledged."""
        if not mailbox.owes:
            self.acknowledge_at = None
            return
        delay_s = ACK_DELAY_S + CROWD_ACK_S * max(0, mailbox.peer_count - CROWD_PEERS)
        if turn.waits:
            delay_s = max(delay_s, WAITING_ACK_SHARE * (RESEND_S + self.crowd_s))
        due_at = now + delay_s
        before = self.acknowledge_at
        self.acknowledge_at = due_at if before is None else min(before, due_at)

    def _after_answers(self, mailbox: Mailbox, now: float) -> None:
        """Find peers to send to again now; what other peers answer does not put that off."""
        lacking = mailbox.take_lacking()
        if mailbox.has_unacknowledged:
            self.behind |= self.lagging.due(
                mailbox, now, pace_s=self.resend_s, longest_s=CROWD_SLOWER * self.crowd_s
            )
            for party in lacking:
                first = mailbox.unacknowledged_by(party, 1)
                if self.crowd_s and self.sendings.is_fresh(first, now, within_s=self.lost_s):
                    continue  # it asks because the crowd is slow, and asks again if it must
                if len(self.bulk.without(first, now, asked=True)) < len(first):
                    continue
                found = self.lagging.asked(party, mailbox.position(party), now)
                self.behind |= found
                self.asked |= found.keys()
        else:
            self.lagging.idle()
            self.behind.clear()
            self.asked.clear()

    def _after_parts(self, turn: Turn, now: float) -> None:
        if not turn.is_asking:
            self.ask_at = None
        elif self.ask_at is None or turn.parts_taken:
            self.ask_s = ASK_S
            self.ask_at = now + self.ask_s

    def due(self, now: float) -> Due:
        """Take the actions that are due; resending slows down while nothing is acknowledged."""
        self._put_off(now - LATE_S, now + READ_S)
        fired = tuple(sorted(name for name, at in self.timers.items() if at <= now))
        for name in fired:
            del self.timers[name]
            self.put_off.discard(name)
        acknowledge = self.acknowledge_at is not None and self.acknowledge_at <= now
        if acknowledge:
            self.acknowledge_at = None
        resend = self.resend_at is not None and self.resend_at <= now
        if resend:
            longest_s = max(RESEND_MAX_S, self.bulk.longest_s)
            if self.slower * self.crowd_s >= self.bulk.least_s:  # else bulk is the cause
                self.slower = min(CROWD_SLOWER, 2 * self.slower)
            longest_s = max(longest_s, CROWD_SLOWER * self.crowd_s)
            self.resend_s = max(self.resend_s, min(longest_s, self.resend_s * 2))
            self.resend_at = now + self.resend_s
            self.lagging.restart(now)
            self.behind.clear()
        greet = self.greet_at is not None and self.greet_at <= now
        if greet:
            self.greet_at = now + GREET_S + self.crowd_s
        ask = self.ask_at is not None and self.ask_at <= now
        if ask:
            self.ask_s = min(ASK_MAX_S, self.ask_s * 2)
            self.ask_at = now + self.ask_s
        is_quiet = self.quiet_at is not None and self.quiet_at <= now
        if is_quiet:
            self.quiet_s = min(max(QUIET_MAX_S, self.crowd_s), 2 * self.quiet_s)
            self.quiet_at = now + self.quiet_s
        timers = tuple(TimerFired(timer=name) for name in fired)
        behind, self.behind = tuple(sorted(self.behind.items())), {}
        asked, self.asked = tuple(sorted(self.asked)), set()
        gaps, lacks = self.gaps.take_lasting(), self.gaps.due(now)
        return Due(timers, acknowledge, resend, greet, gaps, ask, behind, asked, lacks, is_quiet)

    def again(self, mailbox: Mailbox, due: Due, now: float) -> tuple[Frames, ...]:
        """The envelopes to send again, each once; tell `note_again` of those that were sent."""
        if due.resend:
            return self.bulk.without(mailbox.unacknowledged(EARLY_MAX), now)
        found = mailbox.unacknowledged_by_each(due.behind)
        asked = mailbox.unacknowledged_by_each([b for b in due.behind if b[0] in due.asked])
        wait_s = self.slower * self.crowd_s
        found = self.copies.due(found, now, wait_s=wait_s, asked=asked, lost_s=self.lost_s)
        return self.bulk.without(found, now, asked=True)

    def note_again(self, frames: Frames, now: float) -> None:
        """Remember that this envelope is sent again now."""
        self.copies.note((frames,), now)
        self.bulk.expect((frames,), now, self.resend_s)

    def cut_short(self, mailbox: Mailbox, unsent: tuple[Frames, ...], now: float) -> None:
        """There was no room for these copies: they follow once a peer acknowledges the others."""
        left = set(map(id, unsent))
        for party in mailbox.waiting_peers if left else ():
            wanted = map(id, mailbox.unacknowledged_by(party, EARLY_MAX))
            first = next((number for number, name in enumerate(wanted) if name in left), None)
            if first is not None:
                self.lagging.cut_short(party, mailbox.position(party), first, now)

    @property
    def lost_s(self) -> float:
        """How long an envelope may take in a crowd before a peer that asks for it has lost it.

        On a busy machine that is as long as the slowest peer has taken, whose queue is the longest.
        """
        slowest_s = min(self.lagging.answer_s, self.crowd_s)
        return max(LOST_S + self.crowd_s / QUIET_SHARE, slowest_s)

    def next(self) -> float | None:
        """The time of the next deadline."""
        if self.gaps.lasting or self.behind:
            return 0.0  # at once
        moments = [*self.timers.values()]
        moments += [
            at
            for at in (
                self.acknowledge_at,
                self.resend_at,
                self.greet_at,
                self.ask_at,
                self.gaps.next_at,
                self.quiet_at,
            )
            if at is not None
        ]
        return min(moments, default=None)
