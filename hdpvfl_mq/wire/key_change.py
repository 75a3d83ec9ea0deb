"""Replacement of a party's keys: signed by the old key, checked by anyone who knows that key.

It owns what is signed and how a chain of changes is verified; it knows no file and no roster.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection

from nacl.signing import SigningKey, VerifyKey

from hdpvfl_mq.errors import PeerError
from hdpvfl_mq.wire.signing import sign, verify
from schemas.ids import PartyId
from schemas.key_change import KeyChange, KeyChanges

_DOMAIN = b"hdpvfl-mq key change 1\x00"


def key_change(party: PartyId, former: SigningKey, new: SigningKey, curve_key: bytes) -> KeyChange:
    """The old key's statement about the new keys."""
    keys = (bytes(former.verify_key), bytes(new.verify_key), curve_key)
    stated = _statement(party, *keys)
    former_hex, verify_hex, curve_hex = (key.hex() for key in keys)
    return KeyChange(
        party=party,
        former_key=former_hex,
        verify_key=verify_hex,
        curve_key=curve_hex,
        former_signature=sign(former, stated).hex(),
        signature=sign(new, stated).hex(),
    )


def all_keys(changes: KeyChanges) -> tuple[VerifyKey, ...]:
    """Every signing key this party ever had, oldest first; raises PeerError.

    1. each change names this party; 2. each continues from the previous key; 3. no key is used
    again; 4. both keys have signed.
    """
    keys = [changes.changes[0].former_key]
    for change in changes.changes:
        if change.party != changes.party:  # 1
            raise PeerError(f"a key change of {change.party} among those of {changes.party}")
        if change.former_key != keys[-1]:  # 2
            raise PeerError(f"a key change of {changes.party} does not go on from the one before")
        if change.verify_key in keys:  # 3
            raise PeerError(f"{changes.party} takes a key again that it had replaced")
        former, new, curve = _keys(change)
        stated = _statement(change.party, former, new, curve)
        verify(VerifyKey(former), stated, bytes.fromhex(change.former_signature))  # 4
        verify(VerifyKey(new), stated, bytes.fromhex(change.signature))
        keys.append(change.verify_key)
    return tuple(VerifyKey(bytes.fromhex(key)) for key in keys)


def newest_keys(changes: KeyChanges, party: PartyId, pinned: bytes) -> tuple[bytes, bytes]:
    """The keys for signatures and for connections that replace a pinned key; raises PeerError.

    Only changes after the pinned key count. A thief of a key that was replaced earlier can sign
    another change of that key, but no chain that includes the key that is pinned now.
    """
    keys = [bytes(key) for key in all_keys(changes)]
    if changes.party != party or pinned not in keys:
        raise PeerError(f"the key changes do not lead on from the key that {party} has here")
    newest = changes.changes[-1]
    return keys[-1], bytes.fromhex(newest.curve_key)


def next_keys(
    change: KeyChange, party: PartyId, pinned: bytes, former: Collection[bytes]
) -> tuple[bytes, bytes]:
    """The keys for signatures and for connections after one change; raises PeerError.

    1. the change is this party's and starts from its pinned key, so an earlier one that is sent
    again has no effect; 2. the new key was never replaced before; 3. both keys have signed.
    """
    _, new, curve = _keys(change)
    if change.party != party or bytes.fromhex(change.former_key) != pinned:  # 1
        raise PeerError(f"the key change does not lead on from the key that {party} has here")
    if new in former:  # 2
        raise PeerError(f"{party} takes a key again that it had replaced")
    all_keys(KeyChanges(party=party, changes=(change,)))  # 3
    return new, curve


def _keys(change: KeyChange) -> tuple[bytes, bytes, bytes]:
    texts = (change.former_key, change.verify_key, change.curve_key)
    former, new, curve = (bytes.fromhex(text) for text in texts)
    return former, new, curve


def _statement(party: PartyId, former: bytes, new: bytes, curve: bytes) -> bytes:
    return hashlib.sha256(_DOMAIN + party.encode() + b"\x00" + former + new + curve).digest()
