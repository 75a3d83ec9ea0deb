"""Lists of parts: cut, written, read, and refused when they are not one."""

from __future__ import annotations

import numpy as np
import pytest

from hdpvfl_mq.errors import PeerError
from hdpvfl_mq.methods import plan_run
from hdpvfl_mq.privacy.mechanism import SEAL_WORDS
from hdpvfl_mq.runtime.transport import LIMITS, ROOM_BYTES
from hdpvfl_mq.wire import parts
from hdpvfl_mq.wire.canonical import pack
from hdpvfl_mq.wire.codec import decode_header, encode_header
from hdpvfl_mq.wire.parts import PartList, Sizes, is_in_parts, is_large, part_digest
from schemas.envelope import MAX_ARRAY_BYTES, MAX_PART_BYTES, MAX_PARTS, SIGNATURE_BYTES, Header
from schemas.messages import ARRAY_BYTES
from schemas.methods import PrivateModel
from tests.federation import manifest
from tests.samples import example

ENDS = (b"header", b"signature", b"body")
MANY_ROWS = 100_000_000
MIB = 2**20


@pytest.mark.parametrize("size", [1, 7, 8, 9, 100])
def test_parts_are_the_array(size, monkeypatch):
    monkeypatch.setattr(parts, "PART_BYTES", 8)
    array = np.random.default_rng(size).bytes(size)
    listed = PartList.of_array(array)
    assert b"".join(listed.cut(array, n) for n in range(len(listed))) == array
    assert PartList.of_frames((*ENDS, *listed.frames)) == listed
    for number in range(len(listed)):
        listed.check(number, listed.cut(array, number))
    with pytest.raises(PeerError):
        listed.check(len(listed), b"")
    with pytest.raises(PeerError):
        listed.check(0, bytes(listed.length(0) + 1))


FALSE = {
    "no list": ENDS,
    "a digest too few": (*ENDS, bytes(32), pack({"bytes": 2 * MIB, "part_bytes": MIB})),
    "half a digest": (*ENDS, bytes(48), pack({"bytes": 2 * MIB, "part_bytes": MIB})),
    "no byte": (*ENDS, b"", pack({"bytes": 0, "part_bytes": MIB})),
    "parts without size": (*ENDS, bytes(32), pack({"bytes": 9, "part_bytes": 0})),
    "large parts": (*ENDS, bytes(32), pack({"bytes": 9, "part_bytes": MAX_PART_BYTES + 1})),
    "too many parts": (*ENDS, bytes(32), pack({"bytes": MAX_PARTS * MIB + 1, "part_bytes": MIB})),
    "small parts": (*ENDS, bytes(32), pack({"bytes": 9, "part_bytes": MIB - 1})),
    "another field": (*ENDS, bytes(32), pack({"bytes": 9, "part_bytes": MIB, "more": 1})),
    "a loose end": (*ENDS, bytes(32), pack({"bytes": 9, "part_bytes": MIB}) + b"\x00"),
}


@pytest.mark.parametrize("name", FALSE)
def test_what_is_no_list_is_refused(name):
    """Each is refused for its one fault: the list beside them is a list."""
    assert len(PartList.of_frames((*ENDS, bytes(32), pack({"bytes": 9, "part_bytes": MIB})))) == 1
    with pytest.raises(PeerError):
        PartList.of_frames(FALSE[name])


@pytest.mark.parametrize("kind", ["ack", "hello", "align_block", "score_reply"])
def test_only_releases_of_rounds_travel_in_parts(kind):
    header = encode_header(Header(**{**dict(example(Header)), "kind": kind}))
    frames = (header, bytes(SIGNATURE_BYTES), b"", b"", pack({"bytes": 9, "part_bytes": 10}))
    with pytest.raises(PeerError, match=r"in parts|above its limit"):
        decode_header(frames)


@pytest.mark.parametrize("kind", sorted(ARRAY_BYTES))
def test_an_array_that_must_travel_in_parts_is_refused_whole(kind):
    """Else a flood of such envelopes takes several times their size at the broker."""
    header = encode_header(Header(**{**dict(example(Header)), "kind": kind}))
    with pytest.raises(PeerError, match="above its limit"):
        decode_header((header, bytes(SIGNATURE_BYTES), b"", bytes(parts.LARGE_BYTES + 1)))


def test_what_one_peer_may_leave_unread_and_unsent_is_bounded():
    assert is_large(bytes(MAX_ARRAY_BYTES + 1))
    assert not is_large(bytes(MAX_ARRAY_BYTES))
    assert LIMITS.unread_bytes + LIMITS.unsent_bytes < 132 * 2**20
    assert LIMITS.unsent_bytes > ROOM_BYTES  # else the broker drops parts of an honest sender


def test_a_hundred_million_rows_are_planned_and_their_release_fits_its_envelope():
    plan = plan_run(manifest(method=PrivateModel()), MANY_ROWS)
    assert plan.residual_count(0) == plan.share_count(0) == MANY_ROWS
    size = 8 * (MANY_ROWS + SEAL_WORDS)  # the widest numbers
    assert size > MAX_ARRAY_BYTES
    count = -(-size // parts.PART_BYTES)
    listed = PartList(Sizes(bytes=size, part_bytes=parts.PART_BYTES), (part_digest(b""),) * count)
    header = encode_header(Header(**{**dict(example(Header)), "kind": "residual"}))
    frames = (header, bytes(SIGNATURE_BYTES), b"", *listed.frames)
    assert decode_header(frames).kind == "residual"
    assert is_in_parts(frames)
    assert len(PartList.of_frames(frames)) == count == 763
    assert sum(map(len, frames)) < 2**15
    assert not is_large(bytes(100))
