"""Invitations: one short line, damaged ones noticed, and a knock nobody else can make."""

from __future__ import annotations

from dataclasses import replace

import pytest
from nacl.signing import SigningKey

from hdpvfl_mq.errors import PeerError, SettingsError
from hdpvfl_mq.wire.invitation import (
    KNOCK_MAX_BYTES,
    LINE_MAX,
    Invitation,
    knock_of,
    line_of,
    read_knock,
    read_line,
)
from hdpvfl_mq.wire.words import words_of

KEY = SigningKey(bytes(range(32)))
CURVE = bytes(reversed(range(32)))
INVITATION = Invitation(
    federation="spring",
    party="shop",
    role="passive",
    address="broker.bank.example.org:7700",
    curve_key=CURVE,
    fingerprint=bytes(range(16)),
    secret=bytes(range(50, 66)),
    expires_s=1_800_000_000,
)


def test_a_line_says_everything_in_two_hundred_characters():
    line = line_of(INVITATION)
    assert len(line) <= LINE_MAX == 200
    assert read_line(line) == INVITATION
    assert read_line(f"  {line[:70]}\n {line[70:]} ") == INVITATION  # wrapped by a mail program
    assert str(INVITATION.secret) not in repr(INVITATION)


def test_a_line_that_would_be_too_long_is_refused():
    with pytest.raises(SettingsError, match="shorter names"):
        line_of(replace(INVITATION, address="a" * 100 + ":7700"))


def test_every_wrong_letter_is_noticed():
    line = line_of(INVITATION)
    for place in range(8, len(line), 7):
        other = "A" if line[place] != "A" else "B"
        with pytest.raises(SettingsError, match="copy the whole line"):
            read_line(line[:place] + other + line[place + 1 :])
    for wrong in ("", "hello", line[8:], line[:-3]):
        with pytest.raises(SettingsError, match="copy the whole line"):
            read_line(wrong)


def test_a_knock_is_small_and_belongs_to_one_connection():
    frame = knock_of(INVITATION, KEY, CURVE)
    assert len(frame) <= KNOCK_MAX_BYTES
    assert read_knock(frame, CURVE).party == "shop"
    with pytest.raises(PeerError):
        read_knock(frame, bytes(32))  # somebody else's connection
    for wrong in (b"", b"\xc1", frame[:-1], frame + b"x", b"x" * 2000):
        with pytest.raises(PeerError):
            read_knock(wrong, CURVE)


def test_words_are_short_and_differ():
    seen = {words_of(bytes([n])) for n in range(200)}
    assert len(seen) == 200
    for words in seen:
        assert [len(word) for word in words.split()] == [4, 4, 4]
