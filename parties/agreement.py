"""Agreement before the first release: all parties hold the same terms, and each can prove it.

It owns the moves from "this party knows its common rows" to "everybody has signed the same terms":
manifest, members and keys, the tossed seed, row order and plan. It is the same with and without
entity resolution, and linear in the number of parties: each passive party signs for the active
party, which forwards all signatures to all. No party releases anything before it has verified them,
so neither the coordinator nor the active party can make parties train on different terms.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import fields, replace
from types import MappingProxyType
from typing import TypeVar

from hdpvfl_mq.errors import PeerError
from hdpvfl_mq.machine import LedgerRead, Received, Send, Step
from hdpvfl_mq.wire.signing import is_signed, sign
from parties.assets import Assets
from parties.leaving import leave
from parties.phases import Accepted, Agreeing, Aligned, Aligning, Leaving, Terms
from parties.witness import rolled_back
from schemas.config import RunManifest
from schemas.ids import COORDINATOR, PartyId
from schemas.messages import Aligned as AlignedMessage
from schemas.messages import AlignStart, WithdrawReason
from schemas.records import LedgerStanding
from schemas.signed import Agreed, Agreement

E = TypeVar("E", Accepted, Aligning)
# Which digest of the terms differs, as the reason of a withdrawal.
DIFFERS: dict[str, WithdrawReason] = {
    "manifest": "manifest",
    "members": "members",
    "toss": "toss",
    "order": "order",
    "plan": "plan",
}


def members_digest(own: Assets, manifest: RunManifest) -> bytes:
    """Digest of the names and keys of everybody in the run, as this party knows them."""
    keys = {**own.verify_keys, own.party: own.signing_key.verify_key}
    text = hashlib.sha256(b"hdpvfl-mq members 1\x00")
    for name in (*manifest.parties, COORDINATOR):
        text.update(name.encode() + b"\x00" + bytes(keys[name]))
    return text.digest()


def toss_digest(start: AlignStart) -> bytes:
    """Digest of what the coordinator said at the start of entity resolution."""
    kept = b"\x01" if start.is_kept else b"\x00"
    return hashlib.sha256(b"hdpvfl-mq toss 1\x00" + kept + b"".join(start.commitments)).digest()


def reserved(own: Assets, state: Agreeing, given: LedgerRead) -> Step[Agreeing | Aligned | Leaving]:
    """The ledger has answered: without a reserve nothing may be released, so this party leaves."""
    standing = with_news(state.standing, given.standing)
    if not standing.is_reserved:
        text = "the ledger refuses to reserve what the run costs; see 'hdpvfl ledger show'"
        return leave(own, state, "budget", detail=text)
    state = replace(state, standing=standing, is_reserved=True)
    if own.role == "active":
        return _all_agreed(own, state, state.agreements)
    terms = {f.name: getattr(state.terms, f.name) for f in fields(Terms)}
    signature = sign(own.signing_key, state.terms.digest)
    message = Agreement(**terms, ledger=standing.head, signature=signature)
    return state, (Send((state.manifest.active_party,), message),)


def with_news(standing: LedgerStanding, news: LedgerStanding) -> LedgerStanding:
    """This party's ledger as it is now; peers' heads as they were when this run began.

    A head that a peer signed in another run meanwhile may be newer than one still in flight.
    """
    return LedgerStanding(**{**dict(news), "remembered": standing.remembered})


def hold_agreement(own: Assets, state: E, given: Received[Agreement]) -> Step[E]:
    """Keep an agreement of a passive party that knows its rows before the active party does."""
    return replace(state, agreements=_with(state.agreements, given)), ()


def agreement(
    own: Assets, state: Agreeing, given: Received[Agreement]
) -> Step[Agreeing | Aligned | Leaving]:
    """Store a passive party's terms and signature; all of them are needed."""
    agreements = _with(state.agreements, given)
    # With its reserve this party has checked all that came before.
    unchecked = {given.sender: given.message} if state.is_reserved else agreements
    return _all_agreed(own, replace(state, agreements=agreements), unchecked)


def _with(
    known: Mapping[PartyId, Agreement], given: Received[Agreement]
) -> Mapping[PartyId, Agreement]:
    if given.sender in known:
        raise PeerError(f"{given.sender} has signed its terms already")
    return MappingProxyType({**known, given.sender: given.message})


def _all_agreed(
    own: Assets, state: Agreeing, unchecked: Mapping[PartyId, Agreement]
) -> Step[Agreeing | Aligned | Leaving]:
    passives = state.manifest.passive_parties
    for party in passives:  # party order: arrival is not information
        signed = unchecked.get(party)
        if signed is not None and (wrong := _differs(own, state, party, signed)) is not None:
            return leave(own, state, wrong, about=party)
    if not state.is_reserved or not set(passives) <= set(state.agreements):
        return state, ()
    mine = sign(own.signing_key, state.terms.digest)
    message = Agreed(
        ledger=state.standing.head,
        signatures=(mine, *(state.agreements[p].signature for p in passives)),
    )
    after, aligned = _aligned(state)
    return after, (Send(passives, message), aligned)


def _differs(
    own: Assets, state: Agreeing, party: PartyId, signed: Agreement
) -> WithdrawReason | None:
    for field, reason in DIFFERS.items():
        if getattr(signed, field) != getattr(state.terms, field):
            return reason
    if not is_signed(own.verify_keys[party], state.terms.digest, signed.signature):
        return "signature"
    return "ledger" if rolled_back(state.standing, party, signed.ledger) else None


def agreed(own: Assets, state: Agreeing, given: Received[Agreed]) -> Step[Aligned | Leaving]:
    """All have signed: verify that every signature is under the terms this party holds."""
    message, parties = given.message, state.manifest.parties
    if not state.is_reserved or len(message.signatures) != len(parties):
        raise PeerError("an agreement that lacks a signature")
    keys = {**own.verify_keys, own.party: own.signing_key.verify_key}
    for party, signature in zip(parties, message.signatures, strict=True):
        if not is_signed(keys[party], state.terms.digest, signature):
            # An honest active party has verified every signature under its own terms. If those
            # were not this party's terms, its own signature would not verify here either.
            return leave(own, state, "signature", about=given.sender)
    if rolled_back(state.standing, given.sender, message.ledger):
        return leave(own, state, "ledger", about=given.sender)
    after, aligned = _aligned(state)
    return after, (aligned,)


def _aligned(state: Agreeing) -> tuple[Aligned, Send]:
    """Tell the coordinator that rounds may run."""
    after = Aligned(
        standing=state.standing,
        setup=state.setup,
        session=state.session,
        align_total=state.align_total,
        terms=state.terms,
        residuals=state.residuals,
    )
    message = AlignedMessage(
        rows=state.setup.plan.rows,
        rounds=state.setup.plan.rounds,
        order_digest=state.terms.order,
        plan_digest=state.terms.plan,
    )
    return after, Send((COORDINATOR,), message)
