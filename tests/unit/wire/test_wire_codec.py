"""Frames from anybody: whatever they are, the door answers with a message or a PeerError."""

from __future__ import annotations

import contextlib
import os

import msgpack
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hdpvfl_mq.errors import PeerError
from hdpvfl_mq.wire.canonical import MAX_DEPTH, MAX_ITEMS, pack, unpack
from hdpvfl_mq.wire.codec import (
    check_frames,
    decode_body,
    decode_header,
    encode_body,
    encode_header,
    model_digest,
)
from schemas.envelope import (
    MAX_BODY_BYTES,
    MAX_HEADER_BYTES,
    Header,
)
from schemas.messages import RunRefuse, ScoreShare
from tests.samples import KINDS, example, release, sample

pytestmark = pytest.mark.seconds

# More of them in make soak. The fuzz of signed frames also reads 200,000 bodies.
EXAMPLES = int(os.environ.get("EXAMPLES", "100"))
FUZZ = settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def header(kind: str = "score_share") -> Header:
    return Header(**{**dict(example(Header)), "kind": kind})


def frames_of(kind: str) -> tuple[bytes, ...]:
    body, arrays = encode_body(sample(kind))
    return (encode_header(header(kind)), bytes(64), body, *arrays)


def decode(frames):
    found = decode_header(frames)
    return decode_body(found, frames)


# -- canonical msgpack ----------------------------------------------------------------------------

plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | st.text(max_size=20)
    | st.binary(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=12,
)


@FUZZ
@given(plain)
def test_what_is_packed_comes_back_as_it_was(value):
    assert unpack(pack(value), max_bytes=10**6) == value


@FUZZ
@given(st.binary(max_size=200))
def test_any_bytes_are_a_canonical_value_or_refused(data):
    try:
        value = unpack(data, max_bytes=10**6)
    except PeerError:
        return
    assert pack(value) == data


NOT_CANONICAL = {
    "integer too long": b"\xcd\x00\x05",
    "negative integer too long": b"\xd1\xff\xff",
    "text too long": b"\xd9\x01a",
    "binary as 16 bit": b"\xc5\x00\x01a",
    "array too long": b"\xdc\x00\x01\x01",
    "map too long": b"\xde\x00\x01\xa1a\x01",
    "float of 32 bits": b"\xca" + np.array([1.5], ">f4").tobytes(),
    "duplicate keys": b"\x82\xa1a\x01\xa1a\x02",
    "bytes after the end": pack({"a": 1}) + b"\x00",
    "nothing": b"",
    "cut off": pack({"a": "text"})[:-1],
    "never used byte": b"\xc1",
    "extension": msgpack.packb(msgpack.ExtType(5, b"x")),
    "time stamp": msgpack.packb(msgpack.Timestamp(1, 2)),
    "unknown time stamp": b"\xd4\xff\x00",
    "integer as key": b"\x81\x01\x02",
    "array as key": b"\x81\x91\x01\x02",
    "text that is not UTF-8": b"\xa2\xff\xfe",
    "surrogate": b"\xa3\xed\xa0\x80",
}


def test_msgpack_time_stamps_pass_the_extension_hook():
    """Bug: msgpack's own extension type was read as a value and came out canonical."""
    with pytest.raises(PeerError, match="not plain msgpack"):
        unpack(msgpack.packb({"a": (msgpack.Timestamp(1, 2),)}), max_bytes=1000)


@pytest.mark.parametrize("name", NOT_CANONICAL)
def test_another_form_of_a_value_is_refused(name):
    with pytest.raises(PeerError):
        unpack(NOT_CANONICAL[name], max_bytes=1000)


def test_limits_hold_before_anything_is_built():
    with pytest.raises(PeerError, match="above the limit"):
        unpack(bytes(101), max_bytes=100)
    huge = b"\xdd\xff\xff\xff\xff"  # an array of four thousand million, in five bytes
    with pytest.raises(PeerError):
        unpack(huge, max_bytes=100)
    with pytest.raises(PeerError):
        unpack(b"\xdf\xff\xff\xff\xff", max_bytes=100)
    with pytest.raises(PeerError):
        unpack(pack((0,) * (MAX_ITEMS + 1)), max_bytes=10**6)
    assert len(unpack(pack((0,) * MAX_ITEMS), max_bytes=10**6)) == MAX_ITEMS


@pytest.mark.parametrize("depth", [MAX_DEPTH + 1, 500, 1023, 5000, 60_000])
def test_deep_nesting_is_refused(depth):
    with pytest.raises(PeerError):
        unpack(b"\x91" * depth + b"\x00", max_bytes=10**6)
    with pytest.raises(PeerError):
        unpack(b"\x81\xa1a" * depth + b"\x00", max_bytes=10**6)


# -- envelopes ------------------------------------------------------------------------------------


@FUZZ
@given(st.lists(st.binary(max_size=80), max_size=6).map(tuple))
def test_any_frames_are_refused_and_nothing_else_is_raised(frames):
    with pytest.raises(PeerError):
        decode(frames)


@FUZZ
@given(st.sampled_from(sorted(KINDS)), st.data())
def test_a_message_with_changed_bytes_is_a_message_or_refused(kind, data):
    frames = list(frames_of(kind))
    place = data.draw(st.sampled_from([i for i, f in enumerate(frames) if f and i != 1]))
    spoilt = bytearray(frames[place])
    for _ in range(data.draw(st.integers(1, 4))):
        spoilt[data.draw(st.integers(0, len(spoilt) - 1))] = data.draw(st.integers(0, 255))
    frames[place] = bytes(spoilt)
    try:
        message = decode(tuple(frames))
    except PeerError:
        return
    assert encode_body(message) == (frames[2], tuple(frames[3:]))


@FUZZ
@given(st.sampled_from(sorted(KINDS)), plain)
def test_a_body_of_any_value_is_a_message_or_refused(kind, value):
    body = pack({**value, "kind": kind} if isinstance(value, dict) else value)
    frames = (*frames_of(kind)[:2], body)
    with contextlib.suppress(PeerError):
        decode(frames)


@FUZZ
@given(st.sampled_from(sorted(KINDS)), st.data())
def test_a_message_with_one_field_of_any_value_is_a_message_or_refused(kind, data):
    frames = frames_of(kind)
    body = unpack(frames[2], max_bytes=10**6)
    name = data.draw(st.sampled_from(sorted(body)))
    spoilt = pack({**body, name: data.draw(plain)})
    with contextlib.suppress(PeerError):
        decode((*frames[:2], spoilt, *frames[3:]))


@FUZZ
@given(
    st.sampled_from(["|i1", "<i2", "<i4", "<i8", "|u1", "<f8", "<f4", "|O", "|S1"]),
    st.lists(st.integers(-1, 2**63 - 1), max_size=3).map(tuple),
    st.binary(max_size=64),
)
def test_a_tensor_of_any_claim_is_exact_or_refused(dtype, shape, data):
    frames = frames_of("score_share")
    body = unpack(frames[2], max_bytes=10**6)
    tensor = {"dtype": dtype, "shape": shape, "data": 0}
    spoilt = pack({**body, "release": {**body["release"], "tensor": tensor}})
    try:
        message = decode((*frames[:2], spoilt, data))
    except PeerError:
        return
    assert isinstance(message, ScoreShare)
    assert message.release.tensor.array().tobytes() == data
    assert message.release.tensor.array().shape == shape


LAYOUT = {
    "no frame": lambda f: (),
    "one frame": lambda f: f[:1],
    "no body": lambda f: f[:2],
    "two arrays": lambda f: (*f, b""),
    "array nobody asked for": lambda f: (*frames_of("ack"), b"x"),
    "no array": lambda f: f[:3],
    "long header": lambda f: (f[0] + bytes(MAX_HEADER_BYTES), *f[1:]),
    "long body": lambda f: (*f[:2], f[2] + bytes(MAX_BODY_BYTES), *f[3:]),
    "short signature": lambda f: (f[0], f[1][:-1], *f[2:]),
    "long signature": lambda f: (f[0], f[1] + b"x", *f[2:]),
    "array in place of the body": lambda f: (f[0], f[1], f[3], f[2]),
}


@pytest.mark.parametrize("name", LAYOUT)
def test_another_layout_is_refused(name):
    with pytest.raises(PeerError):
        decode(LAYOUT[name](frames_of("score_share")))


@pytest.mark.parametrize("place", [1, -1, 5, 2**63 - 1, True, None, "0", b"\x00\x01"])
def test_a_body_that_points_at_another_array_is_refused(place):
    frames = frames_of("score_share")
    body = unpack(frames[2], max_bytes=10**6)
    tensor = {**body["release"]["tensor"], "data": place}
    spoilt = pack({**body, "release": {**body["release"], "tensor": tensor}})
    with pytest.raises(PeerError):
        decode((*frames[:2], spoilt, *frames[3:]))


@pytest.mark.parametrize("integer", [2**63, 2**64 - 1, -1, -(2**63)])
def test_integers_beyond_what_a_database_holds_are_refused(integer):
    frames = frames_of("round_report")
    body = unpack(frames[2], max_bytes=10**6)
    with pytest.raises(PeerError):
        decode((*frames[:2], pack({**body, "rounds_done": integer})))


def test_a_refusal_shows_no_value_of_the_peer():
    """What a peer sends ends up in a journal others read: only the place and the rule are named."""
    frames = frames_of("run_refuse")
    with pytest.raises(PeerError) as refused:
        decode((*frames[:2], pack({"kind": "run_refuse", "rule": 31337})))
    assert "31337" not in str(refused.value)


def test_a_message_too_long_for_a_body_is_not_sent():
    long = RunRefuse.model_construct(kind="run_refuse", rule="x" * MAX_BODY_BYTES)
    with pytest.raises(ValueError, match="does not fit a body frame"):
        encode_body(long)


def test_check_frames_reads_sizes_only():
    check_frames((b"not a header", bytes(64), b"not a body"))


def test_the_digest_of_settings_depends_on_every_field():
    first = release()
    assert model_digest(first) == model_digest(release())
    assert model_digest(first) != model_digest(release(round_=1))


def test_a_header_is_parsed_once_and_every_frame_still_checked_each_time():
    frames = frames_of("score_share")
    first = decode_header(frames)
    assert decode_header((bytes(bytearray(frames[0])), *frames[1:])) is first
    with pytest.raises(PeerError, match="signature frame"):
        decode_header((frames[0], bytes(63), *frames[2:]))
    with pytest.raises(PeerError, match="above its limit for"):
        decode_header((*frames, bytes(2**24), bytes(0))[:5])
    wrong = frames[0][:-1]
    for _ in range(2):  # a refusal is not kept either
        with pytest.raises(PeerError):
            decode_header((wrong, *frames[1:]))


def test_the_headers_of_a_crowd_stay_parsed_until_their_turn():
    """Bug: of 500 hellos that wait for one turn each header was parsed twice."""
    _, signature, *rest = frames_of("score_share")
    crowd = [
        (encode_header(header().model_copy(update={"epoch": epoch})), signature, *rest)
        for epoch in range(1, 501)
    ]
    arrived = [decode_header(frames) for frames in crowd]
    assert all(decode_header(each) is seen for each, seen in zip(crowd, arrived, strict=True))
