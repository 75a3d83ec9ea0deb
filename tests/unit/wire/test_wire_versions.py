"""Versions of the protocol: which are read, what is answered to others, what stays the same."""

from __future__ import annotations

import msgpack
import pytest

from hdpvfl_mq.errors import PeerError
from hdpvfl_mq.wire.canonical import pack
from hdpvfl_mq.wire.codec import decode_header, model_digest
from hdpvfl_mq.wire.versions import (
    SPOKEN,
    VersionError,
    check_version,
    notice,
    read_notice,
    remedy,
)
from schemas.config import RunManifest
from schemas.envelope import PROTOCOL_VERSION
from schemas.federation import Meet, MemberHello
from schemas.records import LedgerStanding, Started
from tests.federation import manifest


def header(**changes) -> bytes:
    zero = bytes(32)
    fields = {
        "version": 1,
        "run": "test-run",
        "sender": "shop",
        "epoch": 1,
        "kind": "ack",
        "to": [{"party": "bank", "sequence": 0, "ack": 0, "seen": zero}],
        "parent": zero,
        "head": zero,
        "size": 0,
        "root": zero,
    }
    return pack({**fields, **changes})


def frames(**changes) -> tuple[bytes, ...]:
    return (header(**changes), bytes(64), pack({"kind": "ack"}))


@pytest.mark.parametrize("version", range(SPOKEN[0], SPOKEN[1] + 1))
def test_the_newest_version_and_the_one_before_are_read(version):
    assert decode_header(frames(version=version)).version == version
    assert SPOKEN[1] - SPOKEN[0] == 1


@pytest.mark.parametrize(
    ("version", "words"),
    [(0, "upgrade the sender"), (PROTOCOL_VERSION + 1, "upgrade this side first")],
)
def test_any_other_version_is_refused_with_a_remedy_whatever_else_it_holds(version, words):
    with pytest.raises(VersionError, match=words):
        decode_header(frames(version=version, a_field_of_that_version=7))


@pytest.mark.parametrize("version", ["1", 1.0, True, None])
def test_a_version_is_a_whole_number(version):
    with pytest.raises(PeerError, match="whole number"):
        check_version(version)


def test_a_notice_is_read_and_nothing_else_is_taken_for_one():
    assert read_notice(notice((2, 3))) == (2, 3)
    for wrong in (
        (b"pong",),
        (b"versions",),
        (b"versions", b"2"),
        (b"versions", b"3 2"),
        (b"versions", b"0 2"),
        (b"versions", b"-1 2"),
        (b"versions", b"1 99999"),
        (b"versions", b"1 2", b""),
    ):
        assert read_notice(wrong) is None


@pytest.mark.parametrize(
    ("broker", "speaks", "words"),
    [
        ((3, 4), 2, "this party 2: upgrade this party"),
        ((1, 1), 2, "upgrade the broker first, or set speaks = 1 in party.toml"),
        ((1, 2), 4, "upgrade the broker first, or set speaks = 2"),
    ],
)
def test_the_sentence_names_who_is_to_be_upgraded(broker, speaks, words):
    assert words in remedy(broker, speaks)


def test_what_version_1_wrote_has_the_same_bytes():
    assert "wire" not in msgpack.unpackb(pack(manifest().model_dump()))
    assert set(MemberHello(epoch=1).model_dump()) == {"kind", "epoch"}
    met = Meet(party="shop", role="passive", verify_key=bytes(32))
    assert "speaks" not in met.model_dump()
    standing = LedgerStanding(head={"sequence": 0, "digest": bytes(32)}, mu2_units_free=0)
    assert "speaks" not in Started(epoch=1, standing=standing).model_dump()


def test_the_version_of_a_run_is_part_of_what_its_parties_sign():
    lowered, newest = manifest(), manifest(wire=2)
    assert model_digest(lowered) != model_digest(newest)
    assert RunManifest.model_validate_json(newest.model_dump_json()) == newest
    assert RunManifest.model_validate_json(lowered.model_dump_json()) == lowered
