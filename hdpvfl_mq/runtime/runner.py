"""The loop of a process: drain arrived frames, take one turn, send what is now on disk.

It owns the loop of one process; it knows no role and no socket type. A turn that cannot be
committed ends the process with nothing sent.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from dataclasses import replace
from time import monotonic  # the loop's own clock stands still during a turn

from hdpvfl_mq.errors import NetworkError
from hdpvfl_mq.machine import awaited
from hdpvfl_mq.node.node import Event, Node
from hdpvfl_mq.node.ports import Turn
from hdpvfl_mq.runtime.arrivals import Link
from hdpvfl_mq.runtime.metrics import Tally
from hdpvfl_mq.runtime.pacing import Due, Pacing
from hdpvfl_mq.wire.codec import Frames

FORGIVE_S = 86_400.0  # how often a peer may begin again to send what changes nothing
# How long the loop sleeps at most while nothing is due, and after the end. In a process with many
# runs and on a machine with many parties, looks at nothing cost more than the messages.
LOOK_S, LAST_LOOK_S = 10.0, 1.0
LOOKS = 10.0  # at least so many in the time after which a party gives up
BUSY_S = 0.1  # a turn of this length delays the peers' deadlines: nothing was read meanwhile
HEAR_S = 0.02  # before copies are sent: what came during a long turn is read in this time
# If a status is not due after a turn and no message follows, the old one stays. So the node is
# observed again this long after its last turn.
SETTLED_S = (0.25, 2.0)
FAREWELL_S = 3.0  # after the end, how long a party waits for the last acknowledgements


class Stopped(Exception):  # noqa: N818 - a request from the operator, not an error
    """The operator ended this process; a restart continues from its journal."""


class Runner:
    """Runs one node on one link to its outcome."""

    def __init__(
        self,
        node: Node,
        link: Link,
        *,
        patience_s: float,
        observe: Callable[[Node], None],
        farewell_s: float = FAREWELL_S,
        tally: Tally | None = None,
    ) -> None:
        """`patience_s` and `farewell_s` may be infinite: a service waits as long as it takes."""
        self._node, self._link = node, link
        self._given: list[Event] = []
        self._farewell_s = farewell_s
        self._patience_s, self._observe = patience_s, observe
        self._pacing = Pacing()
        self._stopped = False
        self._settles: list[float] = []  # when the node is observed without a turn
        self._tally, self._refused = tally or Tally(), node.refused
        self.resends = 0  # of this node; the tally is that of the whole process

    def stop(self) -> None:
        """Make `run` end after the current turn."""
        self._stopped = True
        self._link.wake.set()

    def give(self, event: Event) -> None:
        """Give the node an input that comes from inside this process."""
        self._given.append(event)
        self._link.wake.set()

    async def run(self) -> str:
        """Run the node and return the outcome; raises Stopped or an error otherwise."""
        looked_at = forgiven_at = monotonic()
        ended_at, silent_s = None, 0.0
        if self._node.outcome is None:
            await self._finish(self._node.start())
        else:  # it takes no turn unless it hears something
            self._pacing.resume(self._node.mailbox, looked_at)
        while True:
            await self._wait()
            if self._stopped:
                raise Stopped
            now, arrivals = monotonic(), self._link.take()
            # While this process worked or was stopped, it read nothing: that counts as one look.
            silent_s = 0.0 if arrivals else silent_s + min(now - looked_at, self._look_s)
            looked_at = now
            if silent_s > self._patience_s:
                raise NetworkError(
                    f"nothing heard for {self._patience_s:.0f} s: check that the broker runs and "
                    "can be reached, then start this process again; it goes on where it stopped"
                )
            if now - forgiven_at > FORGIVE_S:
                forgiven_at = now
                self._node.mailbox.allowance.forgive()
            await self._turn(arrivals, now)
            if self._settles and self._settles[0] <= now:
                del self._settles[0]
                self._observe(self._node)
            if self._node.outcome is not None:
                ended_at = ended_at or now
                mailbox = self._node.mailbox
                over = not mailbox.awaited_peers and not mailbox.owes
                if over or now - ended_at > self._farewell_s:
                    return self._node.outcome

    @property
    def _look_s(self) -> float:
        """How long the loop sleeps at most."""
        look_s = min(LOOK_S, self._patience_s / LOOKS)
        return look_s if self._node.outcome is None else min(LAST_LOOK_S, look_s)

    async def _wait(self) -> None:
        """Wait until a frame arrives or a deadline is due."""
        wake = self._link.wake
        if not wake.is_set():
            next_at, now = self._pacing.next(), monotonic()
            moments = (at for at in (next_at, *self._settles[:1]) if at is not None)
            left_s = max(0.0, min(moments, default=math.inf) - now)
            due = asyncio.get_running_loop().call_later(min(self._look_s, left_s), wake.set)
            await wake.wait()
            due.cancel()
        wake.clear()

    async def _turn(self, arrivals: list[Frames], now: float) -> None:
        node, due = self._node, self._pacing.due(now)
        connected = self._link.take_connected()
        if (due.greet or connected) and node.mailbox.greeting is not None:
            await self._link.send(node.mailbox.greeting)
        for party in due.gaps:
            node.note_missing(party)
        if due.ask:
            node.note_unserved()
        arrivals = await self._heard(arrivals, due)
        given, self._given = self._given, []
        if arrivals or due.fired or given or node.has_refusals:
            turn = node.turn(arrivals, (*due.fired, *given))
            if (busy_s := monotonic() - now) >= BUSY_S:
                self._pacing.was_busy(busy_s)
            await self._finish(turn)
        if connected:  # what was sent over the last connection may be lost, copies too
            due = replace(due, resend=True)
            self._pacing.bulk.forget()
        await self._again(due, now)
        if due.ask or connected:
            for frames in node.ask_again():
                await self._link.send(frames)
        if connected:
            node.mailbox.owe_all()
        asking = (*due.lacks, *(awaited(node.role, node.state) if due.is_quiet else ()))
        for party in asking:
            node.mailbox.owe(party)
        if due.acknowledge or connected or asking:
            while (ack := node.acknowledgement()) is not None:
                await self._link.send(ack)

    async def _heard(self, arrivals: list[Frames], due: Due) -> list[Frames]:
        """What has arrived; before copies are sent, also what waits to be read."""
        if not (due.resend or due.behind):
            return arrivals
        await asyncio.sleep(HEAR_S)  # an acknowledgement may be among it
        return [*arrivals, *self._link.take()]

    async def _again(self, due: Due, now: float) -> None:
        """Send copies as long as there is room; those before may still be on their way."""
        again, sent = self._pacing.again(self._node.mailbox, due, now), 0
        for frames in again:
            if not self._link.has_room():  # or the broker does not read
                break
            self._pacing.note_again(frames, now)
            self._tally.resends += 1
            self.resends += 1
            await self._link.send(frames)
            sent += 1
        if sent or due.behind:  # else the broker may be away, and then everything comes again
            self._pacing.cut_short(self._node.mailbox, again[sent:], now)

    async def _finish(self, turn: Turn) -> None:
        for frames in turn.send:
            await self._link.send(frames)
        # Room is asked of the kernel; without it the peer asks again.
        if turn.parts and self._link.has_room():
            for frames in turn.parts:
                await self._link.send(frames)
                if not self._link.has_room():
                    break
        now = monotonic()
        self._pacing.after_turn(self._node.mailbox, turn, now)
        self._settles = [now + after_s for after_s in SETTLED_S]
        self._tally.refusals += self._node.refused - self._refused
        self._refused = self._node.refused
        self._observe(self._node)
