"""How two members learn each other's keys through a registrar that neither of them trusts.

It owns the three messages and the words that follow from them: commit, then reveal. The member
whose name comes first in the alphabet opens. A role draws no random numbers, so numbers are derived
from a secret, one for each peer and attempt. No attempt is repeated: against a known number, an
attacker could search for keys that lead to the same words.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace

from hdpvfl_mq.errors import PeerError
from hdpvfl_mq.wire.words import words_of
from schemas.federation import Pair
from schemas.ids import PartyId, PartyRole, RunId

NOTHING = bytes(32)
LAST_STAGE = 3


@dataclass(frozen=True)
class Self:
    """This member's keys, and the secret its numbers are derived from."""

    federation: RunId
    party: PartyId
    verify_key: bytes
    curve_key: bytes
    secret: bytes = field(repr=False)
    role: PartyRole = "passive"

    def number(self, peer: PartyId, attempt: int) -> bytes:
        """This side's number for one attempt with one peer."""
        named = f"{self.federation} {self.party} {peer} {attempt}".encode()
        return hashlib.blake2b(
            named, key=self.secret, person=b"hdpvfl pair 1", digest_size=32
        ).digest()

    def message(self, peer: PartyId, stage: int, value: bytes) -> Pair:
        """One of the three messages to a peer."""
        return Pair(
            peer=peer,
            stage=stage,
            value=value,
            verify_key=self.verify_key,
            curve_key=self.curve_key,
        )


@dataclass(frozen=True)
class Pairing:
    """How far the pairing with one member is."""

    role: PartyRole
    attempt: int = 0
    stage: int = 0  # the last message that was sent or received
    commitment: bytes = NOTHING
    verify_key: bytes = NOTHING
    curve_key: bytes = NOTHING
    words: str = ""  # to be compared over the telephone


def commitment(number: bytes, verify_key: bytes, curve_key: bytes) -> bytes:
    """The hash that hides the opener's number and binds it to its keys."""
    return hashlib.sha256(b"hdpvfl-mq pair 1\x00" + number + verify_key + curve_key).digest()


def begin(me: Self, peer: PartyId, pairing: Pairing) -> tuple[Pairing, Pair | None]:
    """Open the pairing if this member's name comes first; otherwise wait for the peer."""
    if me.party > peer or pairing.stage > 0:
        return pairing, None
    hidden = commitment(me.number(peer, pairing.attempt), me.verify_key, me.curve_key)
    return replace(pairing, stage=1), me.message(peer, 1, hidden)


def proceed(me: Self, pairing: Pairing, given: Pair) -> tuple[Pairing, Pair | None]:
    """Handle the next message; any other is refused."""
    peer, opens = given.peer, me.party < given.peer
    if given.stage != pairing.stage + 1 or opens != (given.stage == 2):
        raise PeerError(f"message {given.stage} of the pairing with {peer} is not its turn")
    number = me.number(peer, pairing.attempt)
    keys = replace(pairing, verify_key=given.verify_key, curve_key=given.curve_key)
    if given.stage == 1:
        return replace(keys, stage=2, commitment=given.value), me.message(peer, 2, number)
    if given.stage == 2:
        words = _words(me, keys, peer, (number, given.value))
        return replace(keys, stage=3, words=words), me.message(peer, 3, number)
    if commitment(given.value, given.verify_key, given.curve_key) != pairing.commitment:
        raise PeerError(f"{peer} reveals a number or key that it has not committed to")
    return replace(keys, stage=3, words=_words(me, keys, peer, (given.value, number))), None


def _words(me: Self, peer_keys: Pairing, peer: PartyId, numbers: tuple[bytes, bytes]) -> str:
    mine = me.party.encode() + b" " + me.verify_key + me.curve_key
    theirs = peer.encode() + b" " + peer_keys.verify_key + peer_keys.curve_key
    sides = (mine, theirs) if me.party < peer else (theirs, mine)
    return words_of(b"\x00".join((me.federation.encode(), *sides, *numbers)))
