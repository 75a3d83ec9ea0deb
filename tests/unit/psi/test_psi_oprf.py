"""Both oblivious functions: the two sides agree on common elements and on nothing else."""

from __future__ import annotations

import numpy as np
import pytest
from nacl.bindings import crypto_core_ed25519_add

from hdpvfl_mq.errors import PeerError
from hdpvfl_mq.psi import base_ot
from hdpvfl_mq.psi.elements import find_pairs
from hdpvfl_mq.psi.methods import METHODS, Function
from hdpvfl_mq.psi.oprf import Answerer, Asker
from hdpvfl_mq.psi.stream import derive, random_pairs
from schemas.config import AlignmentMethod

KEYS = [derive(bytes(32), number) for number in range(4)]
ELEMENTS = random_pairs(KEYS[0], 96)


def _pair(method: AlignmentMethod) -> tuple[Asker, Answerer]:
    asking, answering = (Function(method, "asker", key, KEYS[3]) for key in KEYS[1:3])
    return asking.asker(), answering.answerer("peer")


@pytest.mark.parametrize("method", METHODS)
def test_both_sides_compute_the_same_function(method: AlignmentMethod) -> None:
    asker, answerer = _pair(method)
    choice, secret = answerer.choose(asker.opening("peer"))
    agreed = asker.agree("peer", choice)
    seen = []
    for bucket in range(2):
        query = asker.prepare(bucket, ELEMENTS[:64])
        sent = query.sent_to("peer", agreed)
        assert len(sent) == METHODS[method].lengths.query_bytes(64)
        reply, theirs = answerer.answer(secret, bucket, sent, 64, ELEMENTS[32:])
        assert len(reply) == METHODS[method].lengths.reply_bytes(64)
        mine = query.outputs("peer", agreed, reply)
        assert find_pairs(mine, theirs).tolist() == [-1] * 32 + list(range(32))
        seen.append(theirs)
    assert (find_pairs(seen[0], seen[1]) == -1).all()


def test_a_receiver_obtains_exactly_the_chosen_keys() -> None:
    bits = [1, 0, 0, 1, 1]
    opening = base_ot.open_transfers(KEYS[1])
    points, chosen = base_ot.choose(KEYS[2], b"run", opening, bits)
    both = base_ot.sender_keys(KEYS[1], b"run", points)
    assert chosen == [both[bit][number] for number, bit in enumerate(bits)]
    assert not set(chosen) & {both[1 - bit][number] for number, bit in enumerate(bits)}
    assert len(set(points)) == len(points)
    other = base_ot.sender_keys(KEYS[1], b"other run", points)
    assert not set(chosen) & {*other[0], *other[1]}


def test_a_repeated_point_gives_other_keys_in_every_transfer() -> None:
    opening = base_ot.open_transfers(KEYS[1])
    (point,), _ = base_ot.choose(KEYS[2], b"run", opening, [1])
    zeros, ones = base_ot.sender_keys(KEYS[1], b"run", [point] * 3)
    assert len({*zeros, *ones}) == 6


@pytest.mark.parametrize("method", METHODS)
def test_malformed_openings_and_choices_are_refused(method: AlignmentMethod) -> None:
    asker, answerer = _pair(method)
    with pytest.raises(PeerError, match=r"asker .* stage open"):
        answerer.choose(b"\x02" + bytes(31))
    with pytest.raises(PeerError, match=r"peer .* stage choose"):
        asker.agree("peer", b"\x02" * 32)
    with pytest.raises(PeerError, match=r"peer .* stage choose"):
        asker.agree("peer", (b"\x02" + bytes(31)) * 480)


def test_points_off_the_curve_are_refused() -> None:
    asker, answerer = _pair("ecdh")
    query = asker.prepare(0, ELEMENTS[:2])
    wrong = np.zeros(64, dtype=np.uint8).tobytes()
    with pytest.raises(PeerError, match=r"asker .* stage query"):
        answerer.answer(None, 0, wrong, 2, ELEMENTS[:2])
    with pytest.raises(PeerError, match=r"peer .* stage answer"):
        query.outputs("peer", None, wrong)


# The identity, the point of order 2, and an encoding that is not the smallest.
ODD = [
    bytes([1]) + bytes(31),
    (2**255 - 20).to_bytes(32, "little"),
    (2**255 - 16).to_bytes(32, "little"),
]


@pytest.mark.parametrize(
    "odd", [*ODD, None], ids=["identity", "order 2", "not smallest", "torsion"]
)
def test_points_outside_the_group_of_prime_order_are_refused(odd: bytes | None) -> None:
    """An opening with a part of small order would show every secret bit: only where the bit is 1,
    the point that answers has that part too."""
    asker, answerer = _pair("oprf")
    opening = asker.opening("peer")
    choice, _ = answerer.choose(opening)
    mixed = [crypto_core_ed25519_add(point, ODD[1]) for point in (opening, choice[:32])]
    with pytest.raises(PeerError, match="stage open"):
        answerer.choose(odd or mixed[0])
    with pytest.raises(PeerError, match="stage choose"):
        asker.agree("peer", (odd or mixed[1]) + choice[32:])


@pytest.mark.parametrize("method", METHODS)
def test_who_has_another_secret_asks_and_answers_by_other_bytes(method: AlignmentMethod) -> None:
    """Bug: blinding by a key that everybody can compute lets every guess of an id be tested."""
    asked, answered = [], []
    for key in (b"a" * 32, b"b" * 32):
        asker = Function(method, "asker", key, KEYS[3]).asker()
        answerer = Function(method, "asker", key, KEYS[3]).answerer("peer")
        choice, secret = answerer.choose(asker.opening("peer"))
        sent = asker.prepare(0, ELEMENTS[:64]).sent_to("peer", asker.agree("peer", choice))
        asked.append({sent[at : at + 32] for at in range(0, len(sent), 32)})
        answered.append(answerer.answer(secret, 0, sent, 64, ELEMENTS[:64])[1])
    assert not asked[0] & asked[1]
    assert (find_pairs(answered[0], answered[1]) == -1).all()
