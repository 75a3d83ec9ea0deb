"""An invitation: one line with everything a newcomer needs to find and authenticate its broker.

It owns the line and the request that answers it; it reads no clock and draws no secret. The line
holds no long-term secret: once used or expired, it is worthless to a reader.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import zlib
from dataclasses import dataclass, field

from nacl.signing import SigningKey, VerifyKey

from hdpvfl_mq.errors import PeerError, SettingsError
from hdpvfl_mq.wire.canonical import pack, unpack
from hdpvfl_mq.wire.signing import sign, verify
from schemas.base import Digest, Signature, Strict, Text
from schemas.commands import Secret
from schemas.ids import PARTY_ROLES, PartyId, PartyRole, RunId

PREFIX = "hdpvfl1-"
LINE_MAX = 200
KNOCK_MAX_BYTES = 1024
_DOMAIN = b"hdpvfl-mq join 1\x00"
_FINGERPRINT_BYTES = 16


@dataclass(frozen=True)
class Invitation:
    """The contents of the line."""

    federation: RunId
    party: PartyId
    role: PartyRole
    address: str  # host:port
    curve_key: bytes
    fingerprint: bytes  # of the broker's signing key
    secret: bytes = field(repr=False)
    expires_s: int = 0


class Knock(Strict):
    """The only message that a guest may send."""

    federation: RunId
    party: PartyId
    secret: Secret
    verify_key: Digest
    signature: Signature


class KnockAnswer(Strict):
    """The broker's reply to the guest."""

    accepted: bool
    reason: Text
    verify_key: Digest


def fingerprint_of(verify_key: bytes) -> bytes:
    """The fingerprint of the broker's signing key, as in the line."""
    return hashlib.sha256(_DOMAIN + verify_key).digest()[:_FINGERPRINT_BYTES]


def line_of(invitation: Invitation) -> str:
    """The line; SettingsError if address and names make it too long."""
    names = [invitation.federation, invitation.party, invitation.address]
    body = bytes([PARTY_ROLES.index(invitation.role)])
    body += invitation.expires_s.to_bytes(5, "big") + invitation.secret
    body += invitation.curve_key + invitation.fingerprint + " ".join(names).encode()
    body += zlib.crc32(body).to_bytes(4, "big")
    line = PREFIX + base64.urlsafe_b64encode(body).decode().rstrip("=")
    if len(line) > LINE_MAX:
        raise SettingsError("the invitation is too long for one line: take shorter names")
    return line


def read_line(line: str) -> Invitation:
    """Parse a line; SettingsError if a letter is missing or wrong."""
    text = "".join(line.split())
    if not text.startswith(PREFIX):
        raise SettingsError(f"an invitation begins with {PREFIX}: copy the whole line")
    text = text.removeprefix(PREFIX)
    try:
        body = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        if zlib.crc32(body[:-4]).to_bytes(4, "big") != body[-4:] or len(body) < 80:
            raise ValueError("checksum")
        federation, party, address = body[70:-4].decode().split(" ")
    except (ValueError, binascii.Error):
        raise SettingsError("the invitation is damaged: copy the whole line again") from None
    return Invitation(
        federation=federation,
        party=party,
        role=PARTY_ROLES[body[0] % 2],
        address=address,
        curve_key=body[22:54],
        fingerprint=body[54:70],
        secret=body[6:22],
        expires_s=int.from_bytes(body[1:6], "big"),
    )


def knock_of(invitation: Invitation, key: SigningKey, curve_key: bytes) -> bytes:
    """The guest's message: the secret, its signing key, and proof that it has both keys."""
    names = invitation.federation, invitation.party
    digest = _digest(*names, bytes(key.verify_key), curve_key)
    knock = Knock(
        federation=names[0],
        party=names[1],
        secret=invitation.secret,
        verify_key=bytes(key.verify_key),
        signature=sign(key, digest),
    )
    return pack(knock.model_dump())


def read_knock(frame: bytes, curve_key: bytes) -> Knock:
    """Parse a guest's message and check its signature against the key of its connection."""
    plain = unpack(frame, max_bytes=KNOCK_MAX_BYTES)
    try:
        knock = Knock.model_validate(plain)
    except ValueError:
        raise PeerError("the request to join breaks its schema") from None
    digest = _digest(knock.federation, knock.party, knock.verify_key, curve_key)
    verify(VerifyKey(knock.verify_key), digest, knock.signature)
    return knock


def _digest(federation: RunId, party: PartyId, verify_key: bytes, curve_key: bytes) -> bytes:
    named = f"{federation} {party} ".encode()
    return hashlib.sha256(_DOMAIN + named + verify_key + curve_key).digest()
