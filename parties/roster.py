"""The keys a member has pinned, under its signature, and how members' signed lists compare.

It owns what is signed and how two rosters are compared; it knows no message order. The registrar
forwards rosters and can hold one back; it can neither write nor change one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from nacl.signing import SigningKey, VerifyKey

from hdpvfl_mq.wire.canonical import pack
from hdpvfl_mq.wire.signing import is_signed, sign
from parties.pairing import NOTHING, Self
from schemas.federation import PinnedMember, SignedRoster
from schemas.ids import PartyId, PartyRole, RunId

_DOMAIN = b"hdpvfl-mq roster 1\x00"


@dataclass(frozen=True)
class Fellow:
    """Another member and the keys that this party has pinned for it."""

    role: PartyRole
    verify_key: bytes
    curve_key: bytes


@dataclass(frozen=True)
class Dispute:
    """A member and this party have pinned different keys for `party`."""

    party: PartyId
    by: PartyId

    def __str__(self) -> str:
        return (
            f"{self.by} and this party have pinned different keys for {self.party}: compare words "
            f"again after 'hdpvfl remove {self.party}' at both sides"
        )


def sign_roster(
    me: Self, key: SigningKey, fellows: Mapping[PartyId, Fellow], edition: int
) -> SignedRoster:
    """Sign the keys of every member this party has pinned, and its own."""
    everybody = dict(fellows) | {me.party: Fellow(me.role, me.verify_key, me.curve_key)}
    members = tuple(
        PinnedMember(party=p, role=f.role, verify_key=f.verify_key, curve_key=f.curve_key)
        for p, f in sorted(everybody.items())
    )
    digest = _digest(me.federation, me.party, edition, members)
    return SignedRoster(
        signer=me.party, edition=edition, members=members, signature=sign(key, digest)
    )


def disputes(
    me: Self,
    fellows: Mapping[PartyId, Fellow],
    rosters: Mapping[PartyId, SignedRoster],
    former: Mapping[PartyId, tuple[bytes, ...]],
) -> tuple[Dispute, ...]:
    """Every member, this party included, for whom a pinned member has signed other keys.

    A key that was replaced since then does not count as different: its signer has not heard of the
    new one.
    """
    known = {**fellows, me.party: Fellow(me.role, me.verify_key, me.curve_key)}
    return tuple(
        Dispute(entry.party, signer)
        for signer, entry in _entries(me, fellows, rosters)
        if entry.party in known
        and not _same(entry, known[entry.party])
        and entry.verify_key not in former.get(entry.party, ())
    )


def signers(
    me: Self,
    fellows: Mapping[PartyId, Fellow],
    rosters: Mapping[PartyId, SignedRoster],
    party: PartyId,
) -> tuple[PartyId, ...]:
    """Pinned members that have signed the same keys of `party`."""
    return tuple(
        signer
        for signer, entry in _entries(me, fellows, rosters)
        if entry.party == party != signer and _same(entry, fellows[party])
    )


def _entries(
    me: Self, fellows: Mapping[PartyId, Fellow], rosters: Mapping[PartyId, SignedRoster]
) -> Iterator[tuple[PartyId, PinnedMember]]:
    """All entries that members have signed; a roster with a wrong signature is ignored."""
    for signer, signed in sorted(rosters.items()):
        if signer in fellows:
            digest = _digest(me.federation, signer, signed.edition, signed.members)
            if is_signed(VerifyKey(fellows[signer].verify_key), digest, signed.signature):
                yield from ((signer, entry) for entry in signed.members)


def _same(entry: PinnedMember, fellow: Fellow) -> bool:
    curves = {entry.curve_key, fellow.curve_key} - {NOTHING}
    return entry.verify_key == fellow.verify_key and len(curves) <= 1


def _digest(
    federation: RunId, signer: PartyId, edition: int, members: tuple[PinnedMember, ...]
) -> bytes:
    entries = [entry.model_dump() for entry in members]
    return hashlib.sha256(_DOMAIN + pack([federation, signer, edition, entries])).digest()
