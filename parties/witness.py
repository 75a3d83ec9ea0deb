"""Parties remember each other's ledgers, so a ledger restored from an old copy is refused.

It owns the three moves for this; what is remembered is stored in the ledger file. After its last
release a party sends the others its signed ledger head; they keep it beyond the run and send it
back, co-signed, when they meet again. That happens before the first release, because a party sends
it before its first block of entity resolution. A head that its owner never signed proves nothing: a
peer that makes one up is refused and cannot stop the owner.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import TypeVar

from hdpvfl_mq.errors import PeerError
from hdpvfl_mq.machine import CheckLedger, Effect, LedgerRead, Received, RememberHead, Send, Step
from hdpvfl_mq.wire.codec import model_digest
from hdpvfl_mq.wire.signing import is_signed, sign, verify
from parties.assets import Assets
from parties.leaving import leave
from parties.phases import Leaving, Running, Training
from schemas.config import RunManifest
from schemas.ids import PartyId
from schemas.privacy import LedgerHead
from schemas.records import LedgerStanding
from schemas.signed import LedgerNotice, LedgerWitness

_DOMAIN = b"hdpvfl-mq ledger head 1\x00"
REMINDERS_MAX = 8  # ledgers of which a passive party reminds the owners
R = TypeVar("R", bound=Running)


def statement(party: PartyId, head: LedgerHead) -> bytes:
    """What owner and witness sign: the party, its ledger's length and its digest."""
    text = _DOMAIN + party.encode() + b"\x00" + head.sequence.to_bytes(8, "big") + head.digest
    return hashlib.sha256(text).digest()


def remind(own: Assets, manifest: RunManifest, standing: LedgerStanding) -> tuple[Effect, ...]:
    """Send peers of this run the newest ledger head they have ever shown this party.

    The active party, which has witnessed all ledgers, reminds all peers; a passive party reminds a
    few, drawn by the run.
    """
    remembered = [r for r in standing.remembered if r.party in manifest.parties]
    if own.role == "passive":
        drawn = model_digest(manifest) + own.party.encode()
        remembered.sort(key=lambda r: hashlib.sha256(drawn + r.party.encode()).digest())
        remembered = remembered[:REMINDERS_MAX]
    return tuple(
        Send((seen.party,), _witness(own, seen.party, seen.head, seen.signature))
        for seen in remembered
        if seen.party != own.party
    )


def _witness(own: Assets, peer: PartyId, head: LedgerHead, owner_signature: bytes) -> LedgerWitness:
    signature = sign(own.signing_key, statement(peer, head))
    return LedgerWitness(head=head, owner_signature=owner_signature, signature=signature)


def notify(own: Assets, state: Training, given: LedgerRead) -> Step[Training]:
    """Everything is booked: send the ledger's head to its witnesses."""
    witnesses = tuple(sorted(state.witnesses_of(own.party)))
    head = given.standing.head
    notice = LedgerNotice(head=head, signature=sign(own.signing_key, statement(own.party, head)))
    return replace(state, standing=given.standing), (Send(witnesses, notice),)


def rolled_back(standing: LedgerStanding, party: PartyId, head: LedgerHead) -> bool:
    """Whether a peer's ledger is older than a head it signed earlier, or contradicts it.

    Heads are stored under the party's name, so new keys do not hide an old head.
    """
    seen = next((r.head for r in standing.remembered if r.party == party), None)
    if seen is None or head == seen:
        return False
    return head.sequence <= seen.sequence


def noticed(own: Assets, state: R, given: Received[LedgerNotice]) -> Step[R | Leaving]:
    """Keep a peer's head and co-sign it; a head older than one it signed before ends the run."""
    if rolled_back(state.standing, given.sender, given.message.head):
        return leave(own, state, "ledger", about=given.sender)
    return remembered(own, state, given)


def remembered(own: Assets, state: R, given: Received[LedgerNotice]) -> Step[R]:
    """Keep a peer's head and co-sign it."""
    sender, head, signature = given.sender, given.message.head, given.message.signature
    verify(own.verify_keys[sender], statement(sender, head), signature)
    if rolled_back(state.standing, sender, head):
        raise PeerError(f"the ledger of {sender} is older than a head that it signed earlier")
    remember = RememberHead(party=sender, head=head, signature=signature)
    return state, (remember, Send((sender,), _witness(own, sender, head, signature)))


def witnessed(own: Assets, state: R, given: Received[LedgerWitness]) -> Step[R]:
    """A peer remembers a head of this party's ledger: the ledger must not be older than that."""
    message = given.message
    stated = statement(own.party, message.head)
    verify(own.verify_keys[given.sender], stated, message.signature)
    if not any(is_signed(key, stated, message.owner_signature) for key in own.identity):
        raise PeerError("a ledger head that this party never signed")
    check = CheckLedger(party=given.sender, head=message.head, signature=message.signature)
    return state, (check,)
