"""When a run is completed: every round is done and every peer has signed the same end.

It owns that decision and the moves that lead to it; the rounds themselves are elsewhere. A
coordinator cannot complete a run by saying so, and an active party that sent its peers different
residuals does not get their signatures under one end.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from hdpvfl_mq.errors import PeerError
from hdpvfl_mq.machine import Effect, LedgerRead, Received, Send, Step
from hdpvfl_mq.wire.signing import is_signed, sign
from parties import witness
from parties.assets import Assets
from parties.echo import report
from parties.leaving import leave
from parties.phases import Leaving, Phase, Training
from schemas.ids import COORDINATOR, PartyId
from schemas.signed import Ended, Ending, LedgerWitness

_DOMAIN = b"hdpvfl-mq end 1\x00"


def statement(state: Training) -> bytes:
    """What every party signs at its end: digest of terms, number of rounds and all residuals."""
    rounds = state.round.to_bytes(8, "big")
    return hashlib.sha256(_DOMAIN + state.terms + rounds + state.residuals).digest()


def is_complete(own: Assets, state: Phase | None) -> bool:
    """Whether this party may treat the run as completed."""
    # Endings that come before this party's own end are verified only when `is_signable` is set.
    if not isinstance(state, Training) or not (state.is_done and state.is_signable):
        return False
    present = {p for p in state.manifest.parties if not state.is_away(p)} - {own.party}
    if not present <= set(state.endings):
        return False
    if state.is_away(own.party):
        return True  # left out by the plan: nobody waits for this party's ledger
    return (present & state.witnesses_of(own.party)) <= state.witnesses


def rounds_over(own: Assets, state: Training, given: LedgerRead) -> Step[Training | Leaving]:
    """Everything is booked: tell the witnesses where the ledger stands, and sign the end."""
    state, notice = witness.notify(own, state, given)
    signature = sign(own.signing_key, statement(state))
    if own.role == "active":
        after, effects = _with_endings(own, state, state.endings)
        return after, (*notice, *effects)
    message = Ending(rounds=state.round, residuals_digest=state.residuals, signature=signature)
    return state, (*notice, Send((state.manifest.active_party,), message))


def ending(own: Assets, state: Training, given: Received[Ending]) -> Step[Training | Leaving]:
    """A passive party has signed its end; in a one-round run that may come before this end."""
    if given.sender in state.endings:
        raise PeerError(f"{given.sender} has signed its end already")
    signed = {given.sender: given.message.signature}
    if state.is_signable:
        return _with_endings(own, state, signed)
    return replace(state, endings=MappingProxyType({**state.endings, **signed})), ()


def ended(own: Assets, state: Training, given: Received[Ended]) -> Step[Training | Leaving]:
    """The active party forwards the signatures of all who signed the same end as this party."""
    message = given.message
    # Where rounds may run without a party, this party may hear later that it was left out.
    needed = state.manifest.parties if state.manifest.absence == "wait" else ()
    is_whole = len(message.parties) == len(message.signatures) and set(needed) <= {*message.parties}
    if not state.is_done or not is_whole:
        raise PeerError("signatures of the end came too early, or some are missing")
    signed = dict(zip(message.parties, message.signatures, strict=True))
    if _who_signed_another(own, state, signed) is not None:
        # An honest active party verifies signatures first, and sends everybody the same ones.
        return leave(own, state, "signature", about=given.sender)
    return _with_verified(own, state, signed)


def _who_signed_another(
    own: Assets, state: Training, signed: Mapping[PartyId, bytes]
) -> PartyId | None:
    """The first party that has not signed the end that this party holds; None if all have."""
    stated, mine = statement(state), own.signing_key.verify_key
    for party, signature in signed.items():
        if not is_signed(own.verify_keys.get(party) or mine, stated, signature):
            return party
    return None


def _with_endings(
    own: Assets, state: Training, signed: Mapping[PartyId, bytes]
) -> Step[Training | Leaving]:
    """Keep signatures under this party's end; any other means that a peer got other residuals."""
    if (party := _who_signed_another(own, state, signed)) is not None:
        return leave(own, state, "residuals", about=party)
    return _with_verified(own, state, signed)


def _with_verified(own: Assets, state: Training, signed: Mapping[PartyId, bytes]) -> Step[Training]:
    state = replace(state, endings=MappingProxyType({**state.endings, **signed}))
    return progress(own, replace(state, is_signable=True))


def witnessed(own: Assets, state: Training, given: Received[LedgerWitness]) -> Step[Training]:
    """A peer has co-signed a ledger head; after the last round it may be the awaited one."""
    state, check = witness.witnessed(own, state, given)
    if state.is_done and given.message.head == state.standing.head:
        state = replace(state, witnesses=state.witnesses | {given.sender})
    state, effects = progress(own, state)
    return state, (*check, *effects)


def progress(own: Assets, state: Training) -> Step[Training]:
    """Send whatever is due after the last round, each message once."""
    effects: tuple[Effect, ...] = ()
    if own.role == "active" and state.is_signable:
        state, effects = _tell_all(own, state)
    if state.has_reported or state.is_away(own.party) or not is_complete(own, state):
        return state, effects
    last = Send((COORDINATOR,), report(state, last=True))
    return replace(state, has_reported=True), (*effects, last)


def _tell_all(own: Assets, state: Training) -> Step[Training]:
    """Forward the signatures once all present parties have signed, and again if more come."""
    passives = state.manifest.passive_parties
    signed = frozenset(state.endings)
    missing = {p for p in passives if not state.is_away(p)} - signed
    if missing or (state.has_forwarded and signed <= state.forwarded_of):
        return state, ()
    signatures = {**state.endings, own.party: sign(own.signing_key, statement(state))}
    names = tuple(p for p in state.manifest.parties if p in signatures)
    message = Ended(parties=names, signatures=tuple(signatures[p] for p in names))
    return replace(state, forwarded_of=signed, has_forwarded=True), (Send(passives, message),)
