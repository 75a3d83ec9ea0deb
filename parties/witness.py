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
from typing import TYPE_CHECKING, Any

from hdpvfl_mq.machine import CheckLedger, Effect, LedgerRead, Received, RememberHead, Send, Step
from hdpvfl_mq.wire.signing import sign, verify
from schemas.ids import COORDINATOR, PartyId
from schemas.messages import LedgerNotice, LedgerWitness, RoundReport
from schemas.privacy import LedgerHead

if TYPE_CHECKING:
    from parties.member import Member

_DOMAIN = b"hdpvfl-mq ledger head 1\x00"


def statement(party: PartyId, head: LedgerHead) -> bytes:
    """What owner and witness sign: whose ledger, how long, which digest."""
    text = _DOMAIN + party.encode() + b"\x00" + head.sequence.to_bytes(8, "big") + head.digest
    return hashlib.sha256(text).digest()


def remind(party: Member, state: Any) -> tuple[Effect, ...]:
    """Tell each peer of this run the newest head ever seen of its ledger."""
    assert state.standing is not None
    assert state.manifest is not None
    peers = {state.manifest.active_party, *state.manifest.passive_parties} - {party.name}
    return tuple(
        Send((seen.party,), _witness(party, seen.party, seen.head, seen.signature))
        for seen in state.standing.remembered
        if seen.party in peers
    )


def _witness(
    party: Member, peer: PartyId, head: LedgerHead, owner_signature: bytes
) -> LedgerWitness:
    signature = sign(party.own.signing_key, statement(peer, head))
    return LedgerWitness(head=head, owner_signature=owner_signature, signature=signature)


def notify(party: Member, state: Any, given: LedgerRead) -> Step[Any]:
    """Everything is booked: tell the others where the ledger stands."""
    peers, head = tuple(p for p in _parties(state) if p != party.name), given.standing.head
    notice = LedgerNotice(
        head=head, signature=sign(party.own.signing_key, statement(party.name, head))
    )
    return replace(state, standing=given.standing), (Send(peers, notice),)


def noticed(party: Member, state: Any, given: Received) -> Step[Any]:
    """Keep a peer's head and co-sign it."""
    message: LedgerNotice = given.message  # type: ignore[assignment]
    sender, head, signature = given.sender, message.head, message.signature
    verify(party.own.verify_keys[sender], statement(sender, head), signature)
    witness = _witness(party, sender, head, signature)
    return state, (RememberHead(sender, head, signature), Send((sender,), witness))


def witnessed(party: Member, state: Any, given: Received) -> Step[Any]:
    """A peer remembers this party's ledger: it must be no older than that.

    After the last round the run is over for this party once every peer that is there has
    co-signed the final head.
    """
    message: LedgerWitness = given.message  # type: ignore[assignment]
    stated = statement(party.name, message.head)
    verify(party.own.verify_keys[given.sender], stated, message.signature)
    verify(party.own.signing_key.verify_key, stated, message.owner_signature)
    check = CheckLedger(given.sender, message.head, message.signature)
    if not state.is_done or message.head != state.standing.head:
        return state, (check,)
    state = replace(state, witnesses=state.witnesses | {given.sender})
    return state, (check, *completion(party, state))


def completion(party: Member, state: Any) -> tuple[Effect, ...]:
    """The last report, once all rounds are over and every peer that is there has co-signed."""
    missing = {p for p in _parties(state) if not state.is_away(p)} - state.witnesses
    if not state.is_done or not missing <= {party.name}:
        return ()
    return (Send((COORDINATOR,), RoundReport(rounds_done=state.round, last=True)),)


def _parties(state: Any) -> tuple[PartyId, ...]:
    return (state.manifest.active_party, *state.manifest.passive_parties)
