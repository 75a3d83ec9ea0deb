"""A party's connection to its broker: with which keys it connects, and why there is none.

It owns the link, the sentence for the operator and the change of the connection's keys; it sends
nothing by itself.
"""

from __future__ import annotations

import asyncio

from hdpvfl_mq.runtime.diagnosis import sentence
from hdpvfl_mq.runtime.keys import Keys
from hdpvfl_mq.runtime.logs import Log
from hdpvfl_mq.runtime.transport import DealerLink
from hdpvfl_mq.wire.codec import decode_header
from hdpvfl_mq.wire.versions import remedy
from parties.process.member_node import MemberNode
from schemas.config import PartyServiceSettings

WATCH_S = 0.5
UNCONNECTED_S, UNANSWERED_S = 2.0, 8.0  # how long to wait before looking for the reason
OTHER_KEYS_S = 3.0  # how long to try one pair of keys while the broker may know either


class BrokerLink:
    """One party's link and what is known about it."""

    def __init__(self, settings: PartyServiceSettings, member: MemberNode, log: Log) -> None:
        self._settings, self._member, self._log = settings, member, log
        self._keys: Keys = member.keys
        self.trouble = ""  # why this party cannot reach its broker, in one sentence
        broker_key = bytes.fromhex(settings.broker_curve_key)
        self.link = DealerLink(settings.broker, self._keys, broker_key, proxy=settings.proxy)

    @property
    def has_newest_keys(self) -> bool:
        """Whether the broker has this party's newest keys."""
        waiting = self._member.node.mailbox.unacknowledged()
        return not any(decode_header(frames).kind == "key_changed" for frames in waiting)

    async def watch(self) -> None:
        """Log why there is no connection, within seconds and whenever the reason changes."""
        unanswered_s = unconnected_s = 0.0
        while True:
            await asyncio.sleep(WATCH_S)
            self.link.peers = len(self._member.state.fellows)
            connected = self.link.is_connected
            answered = connected and not self._member.node.mailbox.has_unacknowledged
            unanswered_s = 0.0 if answered else unanswered_s + WATCH_S
            unconnected_s = 0.0 if connected else unconnected_s + WATCH_S
            if self._change_keys(unconnected_s):
                unconnected_s = 0.0
            said = self.trouble
            if answered:
                self.trouble = ""
            elif self.link.broker_speaks is not None:
                self.trouble = remedy(self.link.broker_speaks, self._settings.speaks)
            elif unanswered_s >= (UNANSWERED_S if connected else UNCONNECTED_S):
                self.trouble = await self._reason("connected" if connected else self.link.trouble)
            address = self._settings.broker
            if self.trouble and self.trouble != said:
                self._log.say("not_connected", address=address, reason=self.trouble)
            elif said and not self.trouble:
                self._log.say("connected", address=address)

    def _change_keys(self, unconnected_s: float) -> bool:
        """Connect with the newest keys once the broker has them; until then try both in turn."""
        newest, former = self._member.keys, self._member.former
        if self.has_newest_keys:
            wanted = newest
        elif unconnected_s < OTHER_KEYS_S or former is None:
            return False
        else:
            wanted = former if self._keys == newest else newest
        if wanted == self._keys:
            return False
        self._keys = wanted
        self.link.use(wanted)
        return True

    async def _reason(self, trouble: str) -> str:
        settings = self._settings
        way = f"tcp://{settings.proxy}" if settings.proxy else settings.broker
        return await asyncio.to_thread(sentence, way, trouble, settings.federation)
