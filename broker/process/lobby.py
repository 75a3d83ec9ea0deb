"""The lobby: invitations, and the one small message a guest may send while an invitation is open.

It owns invitation lines, guests and their limits; the registrar decides who is a member.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import os
import time
from typing import Any

from broker.process.hosting import HostedFederation
from broker.process.switchboard import LOBBY, Switchboard
from broker.standing import Seat, knock_fault
from hdpvfl_mq.errors import OperatorError, PeerError
from hdpvfl_mq.runtime.control import Answer
from hdpvfl_mq.runtime.gate import Pace
from hdpvfl_mq.runtime.keys import Keys
from hdpvfl_mq.runtime.logs import Log
from hdpvfl_mq.runtime.settings import check_settings
from hdpvfl_mq.wire.canonical import pack
from hdpvfl_mq.wire.codec import Frames
from hdpvfl_mq.wire.invitation import (
    KNOCK_MAX_BYTES,
    Invitation,
    Knock,
    KnockAnswer,
    fingerprint_of,
    line_of,
    read_knock,
)
from schemas.base import in_words
from schemas.commands import Admit, Command, Invite, OperatorCommand
from schemas.config import BrokerServiceSettings
from schemas.ids import RunId

KNOCKS_BURST = 20.0  # knocks of all guests together; then one every few seconds
INVITATION_HOURS = 72.0


class Lobby(Switchboard):
    """A switchboard that guests with an invitation can reach."""

    settings: BrokerServiceSettings
    federations: dict[RunId, HostedFederation]
    log: Log

    def __init__(self, bind: str, keys: Keys) -> None:
        super().__init__(bind, keys)
        self._knocks = Pace(left=KNOCKS_BURST)

    def give(self, federation: HostedFederation, command: Command) -> None:
        """Pass a command to a federation's registrar."""
        assert federation.runner is not None
        federation.runner.give(OperatorCommand(command=command))

    def open_or_close_lobby(self) -> None:
        """Admit guests while at least one invitation is open."""
        self.doors.is_lobby_open = any(f.standing.invitations for f in self.federations.values())

    def invite(self, asked: dict[str, Any]) -> Answer:
        """Make the invitation line for one new member."""
        hosted, address = self.federation_of(asked), self.settings.address
        if address is None:
            raise OperatorError("address: state in broker.toml where members reach this broker")
        party, role = str(asked.get("party")), asked.get("role")
        if party in hosted.standing.members:
            raise OperatorError(f"{party} belongs to {hosted.name} already")
        hours = float(asked.get("hours") or INVITATION_HOURS)
        invitation = Invitation(
            federation=hosted.name,
            party=party,
            role="active" if role == "active" else "passive",
            address=address.removeprefix("tcp://"),
            curve_key=self.keys.curve_public,
            fingerprint=fingerprint_of(bytes(self.keys.signing.verify_key)),
            secret=os.urandom(16),
            expires_s=int(time.time() + 3600 * hours),
        )
        line = line_of(invitation)
        command = check_settings(
            Invite,
            {
                "party": party,
                "role": invitation.role,
                "secret_digest": base64.b64encode(
                    hashlib.sha256(invitation.secret).digest()
                ).decode(),
                "expires_s": invitation.expires_s,
            },
            "invite",
        )
        self.give(hosted, command)
        self.log.say("invited", peer=party, federation=hosted.name)
        return {"line": line, "party": party, "hours": hours}

    async def guest(self, connection: bytes, key: bytes, frames: Frames) -> None:
        """Handle a guest's one message: admit it as a member, or reply why not."""
        if len(frames) != 1 or len(frames[0]) > KNOCK_MAX_BYTES:
            self._turned_away("a guest may send one small message")
            return
        reason, knock = "", None
        try:
            knock = read_knock(frames[0], key)
        except PeerError as refused:
            reason = str(refused)
        # Only guests without a right secret are paced: a flood of them keeps no newcomer out.
        is_invited = knock is not None and self._fault(knock, key) is None
        if not is_invited and not self._knocks.allows(asyncio.get_running_loop().time()):
            self._turned_away("guests knock too often")
            return
        if knock is not None:
            reason = await self._knock(knock, key)
        answer = KnockAnswer(
            accepted=not reason,
            reason=in_words(reason),
            verify_key=bytes(self.keys.signing.verify_key),
        )
        self.gate.send((connection,), (pack(answer.model_dump()),), LOBBY)
        if reason:
            self._turned_away(f"a guest: {reason}")

    def _fault(self, knock: Knock, key: bytes) -> str | None:
        """Why a guest is not admitted, by what the registrar knows now."""
        hosted = self.federations.get(knock.federation)
        if hosted is None:
            return "there is no such federation here"
        return knock_fault(hosted.standing, _guest(knock, key))

    async def _knock(self, knock: Knock, key: bytes) -> str:
        """Why a guest is not admitted; empty if it is a member now."""
        fault = self._fault(knock, key)
        hosted = self.federations.get(knock.federation)
        if hosted is None:
            return fault or ""
        self.give(hosted, _guest(knock, key))
        wanted = Seat("passive", knock.verify_key, key)
        for _ in range(100):
            seat = hosted.standing.members.get(knock.party)
            if fault is not None or (seat is not None and seat.curve_key == wanted.curve_key):
                break
            await asyncio.sleep(0.02)
        if fault is None:
            self.log.say("member_joined", peer=knock.party, federation=hosted.name)
        return fault or ""

    def federation_of(self, asked: dict[str, Any]) -> HostedFederation:
        """The federation that a command names."""
        named = asked.get("federation")
        if named is None and len(self.federations) == 1:
            return next(iter(self.federations.values()))
        if named not in self.federations:
            names = ", ".join(self.federations)
            raise OperatorError(f"--federation: name one of {names}")
        return self.federations[str(named)]


def _guest(knock: Knock, key: bytes) -> Admit:
    return Admit(
        party=knock.party,
        secret=knock.secret,
        verify_key=knock.verify_key,
        curve_key=key,
        at_s=int(time.time()),
    )
