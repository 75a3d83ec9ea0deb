"""The router: who may speak on which connection, and where frames go."""

from __future__ import annotations

import pytest

from broker.router import Router
from hdpvfl_mq.errors import PeerError
from schemas.envelope import Delivery
from schemas.ids import COORDINATOR
from tests.federation import Federation
from tests.puppet import Puppet
from tests.samples import example, sample


@pytest.fixture
def federation():
    return Federation()


@pytest.fixture
def router(federation):
    return federation.router()


def voice(federation, party, to=COORDINATOR, epoch=1):
    return Puppet(party, federation.keys[party], to, header={"epoch": epoch})


def test_a_hello_binds_and_the_coordinator_hears_it(router, federation):
    hello = voice(federation, "bank").say(sample("hello"))
    routed = router.from_connection(b"c1", "bank", hello)
    assert (routed.connections, routed.local) == ((), True)
    assert set(router.bound) == {"bank"}


def test_frames_reach_every_receiver_that_is_there_as_they_are(router, federation):
    for number, party in enumerate(("bank", "shop")):
        hello = voice(federation, party).say(sample("hello"))
        router.from_connection(f"c{number}".encode(), party, hello)
    to = tuple(
        Delivery(**{**dict(example(Delivery)), "party": party}) for party in ("shop", "telco")
    )
    frames = voice(federation, "bank").say(sample("residual"), to=to)
    assert router.from_connection(b"c0", "bank", frames).connections == (b"c1",)


@pytest.mark.parametrize("user", [None, "shop", "stranger", "", COORDINATOR])
def test_the_key_of_the_connection_must_belong_to_the_sender(router, federation, user):
    with pytest.raises(PeerError, match="may not speak for bank"):
        router.from_connection(b"c1", user, voice(federation, "bank").say(sample("hello")))
    assert not router.bound


def test_a_hello_needs_its_signature(router, federation):
    frames = voice(federation, "bank").say(sample("hello"))
    with pytest.raises(PeerError, match="signature"):
        router.from_connection(b"c1", "bank", (frames[0], bytes(64), *frames[2:]))
    assert not router.bound


def test_another_run_is_refused(router, federation):
    frames = Puppet("bank", federation.keys["bank"], COORDINATOR, run="old").say(sample("hello"))
    with pytest.raises(PeerError, match="another run"):
        router.from_connection(b"c1", "bank", frames)


def test_only_the_bound_connection_speaks(router, federation):
    router.from_connection(b"c1", "bank", voice(federation, "bank").say(sample("hello")))
    with pytest.raises(PeerError, match="has not said hello on this connection"):
        router.from_connection(b"c2", "bank", voice(federation, "bank").say(sample("withdraw")))


def test_a_new_connection_takes_over_with_the_same_or_a_later_epoch(router, federation):
    for connection, epoch in ((b"c1", 1), (b"c2", 1), (b"c3", 2)):
        hello = voice(federation, "bank", epoch=epoch).say(sample("hello"))
        router.from_connection(connection, "bank", hello)
    with pytest.raises(PeerError, match="has not said hello"):
        router.from_connection(b"c2", "bank", voice(federation, "bank").say(sample("withdraw")))


def test_an_earlier_epoch_does_not_take_over(router, federation):
    late = voice(federation, "bank", epoch=2).say(sample("hello"))
    early = voice(federation, "bank", epoch=1).say(sample("hello"))
    router.from_connection(b"c2", "bank", late)
    with pytest.raises(PeerError, match="newer process"):
        router.from_connection(b"c1", "bank", early)
    # On the newest connection it is an undelivered hello of an earlier life.
    assert router.from_connection(b"c2", "bank", early).local


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_party_that_counts_its_starts_anew_is_heard_until_a_newer_process_is_there(
    federation, is_restarted
):
    """Bug: a party that had lost its journal after a restart could not say that it withdraws."""
    members = {"bank": federation.keys["bank"].verify_key}
    router = Router("test-run", members, epochs={"bank": 3} if is_restarted else {})
    newest = voice(federation, "bank", epoch=3).say(sample("hello"))
    if not is_restarted:
        router.from_connection(b"c1", "bank", newest)
        router.unreachable(b"c1")
    anew = voice(federation, "bank")
    assert router.from_connection(b"c2", "bank", anew.say(sample("hello"))).local
    assert router.from_connection(b"c2", "bank", anew.say(sample("withdraw"))).local
    router.from_connection(b"c3", "bank", newest)
    for message in (sample("hello"), sample("withdraw")):
        with pytest.raises(PeerError, match=r"newer process|has not said hello"):
            router.from_connection(b"c2", "bank", anew.say(message))


def test_the_router_never_opens_a_body(router, federation):
    router.from_connection(b"c1", "bank", voice(federation, "bank").say(sample("hello")))
    nonsense = voice(federation, "bank").sealed("round_report", b"\xc1 not msgpack", sequence=2)
    assert router.from_connection(b"c1", "bank", nonsense).local


def test_a_hello_that_was_read_late_silences_nobody(router, federation):
    """Bug: of 512 parties whose connections were cut and made again, 88 were never heard again."""
    hello, later = voice(federation, "bank").say(sample("hello")), sample("withdraw")
    for connection in (b"new", b"cut"):
        router.from_connection(connection, "bank", hello)
    router.unreachable(b"cut")
    assert router.bound == {"bank": b"new"}
    router.from_connection(b"new", "bank", voice(federation, "bank").say(later))
    router.unreachable(b"new")
    assert not router.bound


def test_no_earlier_process_speaks_again_when_a_connection_is_gone(router, federation):
    for connection, epoch in ((b"old", 1), (b"new", 2)):
        router.from_connection(
            connection, "bank", voice(federation, "bank", epoch=epoch).say(sample("hello"))
        )
    router.unreachable(b"new")
    assert not router.bound


def test_a_connection_that_is_gone_does_not_come_back(router, federation):
    for connection in (b"first", b"second"):
        router.from_connection(connection, "bank", voice(federation, "bank").say(sample("hello")))
    router.unreachable(b"first")
    assert router.bound == {"bank": b"second"}
    router.unreachable(b"second")
    assert not router.bound
