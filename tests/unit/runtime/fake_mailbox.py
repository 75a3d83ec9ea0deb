"""What pacing sees of a mailbox, and turns that send small or large envelopes."""

from __future__ import annotations

from hdpvfl_mq.node.ports import Turn
from hdpvfl_mq.wire.sequence import Position


class FakeMailbox:
    owes = False
    has_unacknowledged = False
    peer_count = 1
    acknowledged = 0
    greeting = None
    early = ()
    number = None
    waiting_peers = ()

    lacking = ()
    again = ()

    def take_lacking(self):
        return self.lacking

    waiting = ()

    def unacknowledged_by(self, party, first):
        return self.waiting[:first]

    def position(self, party):
        return Position(0, 3, 100)

    def unacknowledged(self, first):
        return self.again

    def unacknowledged_by_each(self, wanted):
        return self.again if wanted else ()

    def take_early(self):
        return self.early

    def missing(self, party):
        return self.number


def turn(*, send=(), arm=(), waits=False):
    return Turn(tuple(send), tuple(arm), None, waits=waits)


def bulk(size, signature=b"signature"):
    return b"header", signature, bytes(size)
