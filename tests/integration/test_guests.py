"""Uninvited guests on a real socket: turned away, noted in the journal, and the run goes on."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from hdpvfl_mq.wire.codec import decode_header, encode_header
from hdpvfl_mq.wire.signing import envelope_digest, sign
from schemas.envelope import MAX_ARRAY_BYTES, MAX_HEADER_BYTES
from schemas.ids import COORDINATOR
from tests.federation import Federation
from tests.integration.sockets import SocketFederation, guest, throw, until


@pytest.fixture(scope="module")
def calm():
    federation = Federation()
    return federation.weights(federation.simulate()), federation.spent()


@pytest.fixture
async def federation(tmp_path, calm):
    """Broker, bank and shop are there; telco comes last, and the run must end as if calm."""
    federation = SocketFederation()
    federation.open(tmp_path)
    federation.join("bank")
    federation.join("shop")
    await until(lambda: set(federation.service.node.state.epochs) == {"bank", "shop"})
    yield federation
    federation.join("telco")
    assert set((await federation.end()).values()) == {"completed"}
    weights, spent = calm
    for party, w in federation.final_weights().items():
        np.testing.assert_array_equal(w, weights[party])
    assert federation.spent() == spent


def hello_of(federation: SocketFederation, party: str) -> tuple[bytes, ...]:
    """The hello a party's first process would send."""
    other = Federation()
    return other.node(party).start().send[0]


async def test_a_peer_without_curve_is_refused(federation):
    with guest(federation.settings.bind) as socket:
        await throw(socket, hello_of(federation, "telco"))
        await federation.refused("without a valid CURVE handshake")
    assert "telco" not in federation.service.router.bound


async def test_a_peer_with_an_unknown_key_is_refused(federation):
    with guest(federation.settings.bind, server_key=federation.broker_key) as socket:
        await throw(socket, hello_of(federation, "telco"))
        await federation.refused("not on the list of members")
    assert "telco" not in federation.service.router.bound


async def test_a_peer_that_mistakes_the_broker_is_refused(federation):
    """A wrong server key: the guest thinks it speaks to somebody else."""
    wrong = federation.curve["bank"].curve_public
    secret = federation.curve["telco"].curve_secret
    with guest(federation.settings.bind, server_key=wrong, secret=secret) as socket:
        await throw(socket, hello_of(federation, "telco"))
        await federation.refused("without a valid CURVE handshake")


@pytest.mark.parametrize("claimed", ["telco", "bank", COORDINATOR])
async def test_a_known_key_under_another_name_is_refused(federation, claimed):
    """shop's key is on the list; even a genuine hello of another party does not pass with it."""
    frames = (
        hello_of(federation, claimed)
        if claimed != COORDINATOR
        else forged(federation, sender=COORDINATOR)
    )
    secret = federation.curve["shop"].curve_secret
    with guest(federation.settings.bind, server_key=federation.broker_key, secret=secret) as socket:
        await socket.send_multipart(frames)
        await federation.refused(f"the key of shop may not speak for {claimed}")
    assert claimed not in set(federation.service.router.bound) - {"bank"}


def forged(federation: SocketFederation, **changes) -> tuple[bytes, ...]:
    """telco's hello with another header, signed with telco's key all the same."""
    other = Federation()
    node = other.node("telco")
    frames = node.start().send[0]
    header = type(decode_header(frames))(**{**dict(decode_header(frames)), **changes})
    new = encode_header(header)
    signature = sign(federation.keys["telco"], envelope_digest(new, frames[2], frames[3:]))
    return (new, signature, *frames[2:])


async def test_the_right_key_without_the_signature_is_refused(federation):
    frames = hello_of(federation, "telco")
    broken = (frames[0], bytes(64), *frames[2:])
    secret = federation.curve["telco"].curve_secret
    with guest(federation.settings.bind, server_key=federation.broker_key, secret=secret) as socket:
        await socket.send_multipart(broken)
        await federation.refused("signature does not verify")
    assert "telco" not in federation.service.router.bound


async def test_a_word_before_hello_is_refused(federation):
    frames = forged(federation, kind="round_report")
    secret = federation.curve["telco"].curve_secret
    with guest(federation.settings.bind, server_key=federation.broker_key, secret=secret) as socket:
        await socket.send_multipart(frames)
        await federation.refused("has not said hello on this connection")


async def test_a_hello_with_an_old_epoch_is_refused(federation):
    """Somebody who copied shop's keys and an old hello cannot take its place."""
    old, router = hello_of(federation, "shop"), federation.service.router
    bound = router._bound["shop"]  # forgotten as soon as somebody writes to who has left
    await federation.leave("shop")
    federation.join("shop")  # its journal makes this epoch 2
    await until(lambda: router._bound.get("shop") not in (None, bound))
    bound = router._bound["shop"]
    secret = federation.curve["shop"].curve_secret
    with guest(federation.settings.bind, server_key=federation.broker_key, secret=secret) as socket:
        await socket.send_multipart(old)
        await federation.refused("shop has a newer process than this hello")
    assert router._bound["shop"] == bound


HOSTILE = {
    "no frames": (lambda f: (b"",), "1 frames, expected 3 to 5"),
    "too few frames": (lambda f: f[:2], "2 frames, expected 3 to 5"),
    "too many frames": (lambda f: (*f, b"", b"", b""), "6 frames, expected 3 to 5"),
    "very many frames": (lambda f: f[:1] * 5000, "5000 frames, expected 3 to 5"),
    "oversize header": (lambda f: (bytes(MAX_HEADER_BYTES + 1), *f[1:]), "above its limit"),
    "oversize body": (lambda f: (*f[:2], bytes(2**20)), "above its limit"),
    "oversize array": (lambda f: (*f, bytes(MAX_ARRAY_BYTES + 1)), "array frame is above its"),
    "short signature": (lambda f: (f[0], bytes(63), *f[2:]), "signature frame has the wrong size"),
    "header not canonical": (lambda f: (b"\xdf\0\0\0\0", *f[1:]), "not in canonical form"),
    "header not msgpack": (lambda f: (b"\xc1", *f[1:]), "not plain msgpack"),
    "header of another shape": (lambda f: (b"\x80", *f[1:]), "header breaks its schema"),
}


def answered(federation: SocketFederation) -> set[str]:
    return set(getattr(federation.service.node.state, "accepted", ()))


async def test_hostile_frames_of_a_bound_party_are_refused(federation):
    """telco itself, greeted and bound, sends everything that breaks the layout of an envelope."""
    hello = hello_of(federation, "telco")
    secret = federation.curve["telco"].curve_secret
    with guest(federation.settings.bind, server_key=federation.broker_key, secret=secret) as socket:
        await socket.send_multipart(hello)
        # The guest's hello is the last that was missing: wait until all the others have answered.
        await until(lambda: answered(federation) == {"bank", "shop"})
        state = federation.service.node.state
        for name, (spoil, words) in HOSTILE.items():
            before = federation.count_refused(words)
            await socket.send_multipart(spoil(hello))
            await until(lambda w=words, b=before: federation.count_refused(w) > b, name)
            assert federation.service.node.state is state, name


async def test_a_frame_far_above_the_limit_cuts_the_connection_only(federation):
    hello = hello_of(federation, "telco")
    secret = federation.curve["telco"].curve_secret
    with guest(federation.settings.bind, server_key=federation.broker_key, secret=secret) as socket:
        await socket.send_multipart((*hello, bytes(2 * MAX_ARRAY_BYTES)))
        await asyncio.sleep(0.5)
    assert "telco" not in federation.service.router.bound
