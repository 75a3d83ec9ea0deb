"""Whole runs: every party finds the plain intersection, whatever shape, size, method or order."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psi_federation import Federation, numbered, received, shaped_sets

from hdpvfl_mq.errors import PeerError, SettingsError
from hdpvfl_mq.psi import Outgoing, choose_method, exchange, order_digest, row_order
from hdpvfl_mq.psi.elements import bucket_count
from hdpvfl_mq.psi.toss import commit, nonce_of, toss
from tests.deep import deep_digest

pytestmark = pytest.mark.seconds

SHAPES = ["overlapping", "disjoint", "nested", "identical"]
METHODS = ["ecdh", "oprf"]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("parties", "size"), [(2, 0), (2, 300), (3, 70), (4, 1)])
def test_every_party_finds_the_intersection(
    method: str, shape: str, parties: int, size: int
) -> None:
    Federation(method, shaped_sets(shape, parties, size)).run().check()


@pytest.mark.parametrize(
    ("method", "parties", "size"),
    [
        ("ecdh", 16, 20),
        ("oprf", 5, 500),  # an exchange of its own with every partner, so 16 show no more
        pytest.param("oprf", 16, 500, marks=pytest.mark.slow),
    ],
)
def test_many_parties(method: str, parties: int, size: int) -> None:
    sets = shaped_sets("overlapping", parties, size)
    federation = Federation(method, sets).run(random.Random(16)).check()
    assert federation.expected()


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("parties", "size"), [(2, 6000), (3, 2500)])
def test_thousands_of_ids_by_oprf(shape: str, parties: int, size: int) -> None:
    Federation("oprf", shaped_sets(shape, parties, size)).run().check()


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("parties", [2, 3, 5, 16])
@pytest.mark.parametrize(("method", "size"), [("ecdh", 3000), ("oprf", 100_000)])
def test_large_sets(method: str, size: int, parties: int, shape: str) -> None:
    Federation(method, shaped_sets(shape, parties, size)).run().check()


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("empty", [0, 1, 2])
def test_one_empty_set_leaves_nothing(method: str, empty: int) -> None:
    sets = shaped_sets("identical", 3, 30)
    sets[empty] = []
    federation = Federation(method, sets).run().check()
    assert federation.expected() == set()


@pytest.mark.parametrize("method", METHODS)
def test_sizes_may_differ_widely(method: str) -> None:
    sets = [numbered(range(700)), numbered(range(5)), numbered(range(3, 100))]
    assert Federation(method, sets).run().check().expected() == set(numbered([3, 4]))


@pytest.mark.parametrize(("method", "bucket_ids"), [("ecdh", 40), ("oprf", 400)])
@pytest.mark.parametrize("parties", [2, 3])
def test_many_buckets(method: str, bucket_ids: int, parties: int) -> None:
    sets = shaped_sets("overlapping", parties, 3 * bucket_ids)
    Federation(method, sets, bucket_ids=bucket_ids).run(random.Random(3)).check()


@pytest.mark.parametrize("method", METHODS)
def test_result_does_not_depend_on_arrival_order(method: str) -> None:
    sets = shaped_sets("overlapping", 3, 90)
    terms = {"bucket_ids": 48, "block_bytes": 1 << 14, "window": 1}
    for seed in range(2):
        Federation(method, sets, **terms).run(random.Random(seed)).check()


@pytest.mark.parametrize("method", METHODS)
def test_same_inputs_give_the_same_bytes(method: str) -> None:
    sets = shaped_sets("overlapping", 3, 50)
    runs = [Federation(method, sets).run(random.Random(7)).delivered for _ in range(2)]
    assert runs[0] == runs[1]


class _Repeating(Federation):
    """Makes every move twice from the same session, the second time with an empty workspace."""

    repeated = 0

    def __init__(self, *given: Any, **terms: Any) -> None:
        super().__init__(*given, **terms)
        self.digests = {name: deep_digest(session) for name, session in self.sessions.items()}

    def before(self, sender: str, receiver: str, message: Outgoing) -> None:
        session, work, block = (
            self.sessions[receiver],
            self.works[receiver],
            received(sender, message),
        )
        after, outgoing = session.receive(work, block)
        work.forget()
        again, same = session.receive(work, block)
        assert outgoing == same
        digest = deep_digest(after)
        assert deep_digest(again) == digest
        assert deep_digest(session) == self.digests[receiver]  # as the move before left it
        self.digests[receiver] = digest
        self.repeated += 1


@pytest.mark.parametrize("method", METHODS)
def test_a_session_is_a_value_and_a_workspace_a_memo(method: str) -> None:
    sets = shaped_sets("overlapping", 3, 100)
    terms = {"bucket_ids": 64, "block_bytes": 1 << 14, "window": 2}
    plain = Federation(method, sets, **terms).run().check()
    repeating = _Repeating(method, sets, **terms).run().check()
    assert repeating.delivered == plain.delivered
    assert isinstance(repeating, _Repeating)
    assert repeating.repeated > 20


@pytest.mark.parametrize("method", METHODS)
def test_another_secret_or_seed_changes_all_blocks(method: str) -> None:
    sets = shaped_sets("identical", 2, 50)
    runs = [Federation(method, sets, seed=seed).run().delivered for seed in (1, 2)]
    payloads = [{delivered.message.payload for delivered in run} for run in runs]
    assert not payloads[0] & payloads[1]


@pytest.mark.parametrize(("method", "size"), [("ecdh", 1500), ("oprf", 3000)])
def test_window_bounds_what_is_on_the_way(method: str, size: int) -> None:
    terms = {"block_bytes": 1 << 14, "window": 2}
    federation = Federation(method, shaped_sets("identical", 2, size), **terms).run().check()
    assert any(delivered.message.stage == "credit" for delivered in federation.delivered)
    assert max(federation.most_waiting.values()) <= 3  # a verdict may go along
    assert all(len(each.message.payload) <= 1 << 14 for each in federation.delivered)


def test_common_rows_get_one_order() -> None:
    federation = Federation("oprf", shaped_sets("overlapping", 3, 400)).run().check()
    seed, key = bytes(range(32)), bytes(32)
    ordered = [[ids[p] for p in row_order(ids, seed)] for ids in federation.found()]
    assert ordered[0] == ordered[1] == ordered[2]
    assert len({order_digest(ids, key) for ids in ordered}) == 1


@pytest.mark.parametrize("bounds", [{"rows_min": 31}, {"rows_max": 29}])
def test_a_number_outside_the_bounds_is_withheld(bounds: dict[str, int]) -> None:
    sets = [numbered(range(60)), numbered(range(30, 90)), numbered(range(30, 90))]
    federation = Federation("ecdh", sets, **bounds).run()
    for session in federation.sessions.values():
        assert session.is_withheld
        assert session.is_finished
        assert not session.is_found
    stages = [delivered.message.stage for delivered in federation.delivered]
    assert "common" not in stages
    inside = Federation("ecdh", sets, rows_min=30, rows_max=30).run().check()
    assert len(inside.expected()) == 30


def test_method_follows_the_largest_set() -> None:
    assert choose_method([10, 1_999]) == "ecdh"
    assert choose_method([10, 2_000]) == "oprf"
    assert choose_method([]) == "ecdh"


@pytest.mark.parametrize(("size", "method"), [(300, "ecdh"), (2_100, "oprf")])
def test_auto_is_decided_by_every_party_from_the_sizes_of_the_hellos(
    size: int, method: str
) -> None:
    federation = Federation("auto", [numbered(range(20)), numbered(range(size))]).run().check()
    assert {session.method for session in federation.sessions.values()} == {method}


class _Grinding(Federation):
    """The last to greet knows all other nonces and would rather have another one itself."""

    tried = 0

    def before(self, sender: str, receiver: str, message: Outgoing) -> None:
        if sender == self.names[-1] and message.stage == "hello":
            for other in (bytes(32), nonce_of(self.secret_of(self.names[0]))):
                ground = replace(message, payload=message.payload[:-32] + other)
                with pytest.raises(PeerError, match="a nonce that it did not commit to"):
                    self.give(sender, receiver, ground)
                self.tried += 1


def test_the_last_to_speak_cannot_choose_the_public_seed() -> None:
    federation = _Grinding("ecdh", shaped_sets("overlapping", 3, 50)).run().check()
    assert isinstance(federation, _Grinding)
    assert federation.tried == 4
    assert {session.seed for session in federation.sessions.values()} == {federation.public_seed}


def test_the_public_seed_depends_on_every_nonce() -> None:
    known = {
        toss(bytes(32), [bytes([first]), bytes([second])]) for first in (0, 1) for second in (0, 1)
    }
    assert len(known) == 4
    assert commit(bytes(32), "a") != commit(bytes(32), "b")


@pytest.mark.parametrize("wrong", [{"block_bytes": 1000}, {"window": 0}, {"bucket_ids": 0}])
def test_unusable_terms_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(SettingsError):
        Federation("ecdh", [[], []], **wrong)


id_sets = st.lists(st.sets(st.binary(min_size=1, max_size=6), max_size=12), min_size=2, max_size=4)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(sets=id_sets, common=st.sets(st.binary(min_size=1, max_size=40), max_size=5))
def test_any_small_sets_by_ecdh(sets: list[set[bytes]], common: set[bytes]) -> None:
    Federation("ecdh", [sorted(own | common) for own in sets]).run().check()


@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(sets=id_sets, common=st.sets(st.binary(min_size=1, max_size=40), max_size=5))
def test_any_small_sets_by_oprf(sets: list[set[bytes]], common: set[bytes]) -> None:
    Federation("oprf", [sorted(own | common) for own in sets]).run().check()


def test_a_status_looks_at_the_sizes_of_all_parties_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bug: with 128 partners this took 6 % of the active party's time, and grew as a square."""
    federation = Federation("ecdh", [numbered(range(20))] * 6)
    federation.run()
    active, looks = federation.sessions["party0"], list[tuple[int, ...]]()
    shown = active.progress

    def counted(sizes: Iterable[int], bucket_ids: int) -> int:
        looks.append(tuple(sizes))
        return bucket_count(looks[-1], bucket_ids)

    monkeypatch.setattr(exchange, "bucket_count", counted)
    fresh = replace(active)  # as after each message
    assert fresh.progress == shown
    assert len(looks) == 1
    assert fresh == active
