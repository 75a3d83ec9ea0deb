"""New keys count where the old ones have signed them, and nowhere else."""

from __future__ import annotations

import pytest
from nacl.signing import SigningKey

from hdpvfl_mq.errors import PeerError
from hdpvfl_mq.wire.key_change import all_keys, key_change, newest_keys
from schemas.key_change import KeyChange, KeyChanges

KEYS = [SigningKey(bytes([n]) * 32) for n in range(1, 6)]
FIRST, SECOND, THIRD, THIEF, OTHER = KEYS


def changed(former: SigningKey, new: SigningKey, party: str = "shop") -> KeyChange:
    return key_change(party, former, new, b"c" * 32)


def chain(*changes: KeyChange, party: str = "shop") -> KeyChanges:
    return KeyChanges(party=party, changes=changes)


def edited(change: KeyChange, **fields) -> KeyChange:
    return KeyChange(**{**dict(change), **fields})


def public(key: SigningKey) -> bytes:
    return bytes(key.verify_key)


TWICE = chain(changed(FIRST, SECOND), changed(SECOND, THIRD))


def test_every_key_of_an_identity_is_found_in_order():
    assert all_keys(TWICE) == (FIRST.verify_key, SECOND.verify_key, THIRD.verify_key)


@pytest.mark.parametrize("pinned", [FIRST, SECOND, THIRD])
def test_a_pinned_key_leads_to_the_newest(pinned):
    assert newest_keys(TWICE, "shop", public(pinned)) == (public(THIRD), b"c" * 32)


def test_the_thief_of_a_replaced_key_cannot_go_on_from_it():
    fork = chain(changed(FIRST, THIEF))
    with pytest.raises(PeerError, match="do not lead on"):
        newest_keys(fork, "shop", public(SECOND))


def test_changes_of_another_party_do_not_count():
    with pytest.raises(PeerError, match="do not lead on"):
        newest_keys(TWICE, "telco", public(FIRST))


@pytest.mark.parametrize(
    "wrong",
    [
        chain(edited(changed(THIEF, SECOND), former_key=public(FIRST).hex())),
        chain(edited(changed(FIRST, THIEF), verify_key=public(OTHER).hex())),
        chain(edited(changed(FIRST, SECOND), curve_key="ab" * 32)),
        chain(edited(changed(FIRST, SECOND), signature=changed(FIRST, SECOND).former_signature)),
        chain(edited(changed(FIRST, SECOND, "telco"), party="shop")),
        chain(changed(FIRST, SECOND), changed(FIRST, THIRD)),
        chain(changed(FIRST, SECOND), changed(SECOND, FIRST)),
        chain(changed(FIRST, SECOND), changed(SECOND, THIRD, "telco")),
    ],
    ids=["forged", "new", "connection", "unproved", "moved", "fork", "circle", "foreign"],
)
def test_changes_that_do_not_hold_are_refused(wrong):
    with pytest.raises(PeerError):
        all_keys(wrong)
