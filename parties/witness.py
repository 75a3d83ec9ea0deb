"""Remembering each other's ledgers: a head restored from an older copy is noticed and refused.

It owns the three moves of that; the memory itself is in the ledger file. After its last release a
party tells the others, signed, where its ledger stands; they keep that beyond the run and show it
again, co-signed, when they meet. All of it comes before the first release, because a party sends it
before its first block of entity resolution. A head that its owner never signed proves nothing: a
peer that makes one up is refused, it cannot stop the owner.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace

from hdpvfl_mq.machine import CheckLedger, Effect, LedgerRead, Received, RememberHead, Send, Step
from hdpvfl_mq.wire.signing import sign, verify
from parties.assets import Assets
from parties.phases import Running, Training
from schemas.config import RunManifest
from schemas.ids import COORDINATOR, PartyId
from schemas.messages import LedgerNotice, LedgerWitness, RoundReport
from schemas.privacy import LedgerHead
from schemas.records import LedgerStanding

_DOMAIN = b"hdpvfl-mq ledger head 1\x00"


def statement(party: PartyId, head: LedgerHead) -> bytes:
    """What owner and witness sign: whose ledger, how long, which digest."""
    text = _DOMAIN + party.encode() + b"\x00" + head.sequence.to_bytes(8, "big") + head.digest
    return hashlib.sha256(text).digest()


def remind(own: Assets, manifest: RunManifest, standing: LedgerStanding) -> tuple[Effect, ...]:
    """Tell each peer of this run the newest head ever seen of its ledger."""
    peers = set(manifest.parties) - {own.party}
    return tuple(
        Send((seen.party,), _witness(own, seen.party, seen.head, seen.signature))
        for seen in standing.remembered
        if seen.party in peers
    )


def _witness(own: Assets, peer: PartyId, head: LedgerHead, owner_signature: bytes) -> LedgerWitness:
    signature = sign(own.signing_key, statement(peer, head))
    return LedgerWitness(head=head, owner_signature=owner_signature, signature=signature)


def notify(own: Assets, state: Training, given: LedgerRead) -> Step[Training]:
    """Everything is booked: tell the others where the ledger stands."""
    peers = tuple(p for p in state.manifest.parties if p != own.party)
    head = given.standing.head
    notice = LedgerNotice(head=head, signature=sign(own.signing_key, statement(own.party, head)))
    return replace(state, standing=given.standing), (Send(peers, notice),)


def noticed(own: Assets, state: Running, given: Received[LedgerNotice]) -> Step[Running]:
    """Keep a peer's head and co-sign it."""
    sender, head, signature = given.sender, given.message.head, given.message.signature
    verify(own.verify_keys[sender], statement(sender, head), signature)
    remember = RememberHead(party=sender, head=head, signature=signature)
    return state, (remember, Send((sender,), _witness(own, sender, head, signature)))


def witnessed(own: Assets, state: Running, given: Received[LedgerWitness]) -> Step[Running]:
    """A peer remembers this party's ledger: it must be no older than that.

    After the last round the run is over for this party once every peer that is there has
    co-signed the final head.
    """
    message = given.message
    stated = statement(own.party, message.head)
    verify(own.verify_keys[given.sender], stated, message.signature)
    verify(own.signing_key.verify_key, stated, message.owner_signature)
    check = CheckLedger(party=given.sender, head=message.head, signature=message.signature)
    is_final = isinstance(state, Training) and state.is_done
    if not isinstance(state, Training) or not is_final or message.head != state.standing.head:
        return state, (check,)
    state = replace(state, witnesses=state.witnesses | {given.sender})
    return state, (check, *completion(own, state))


def completion(own: Assets, state: Training) -> tuple[Effect, ...]:
    """The last report, once all rounds are over and every peer that is there has co-signed."""
    present = {p for p in state.manifest.parties if not state.is_away(p)}
    if not state.is_done or not present - state.witnesses <= {own.party}:
        return ()
    return (Send((COORDINATOR,), RoundReport(rounds_done=state.round, last=True)),)
