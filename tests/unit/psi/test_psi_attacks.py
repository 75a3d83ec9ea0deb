"""A dictionary attacker on every view: it does no better than chance, and breaks a salted hash.

The attacker holds everything its party (or the broker) received, opened with its own keys, and all
its secrets. It has as many guesses that are in the victim's set as guesses that are not, and says
which is which. The ids are guessable on purpose: only the protocol protects them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from hashlib import blake2b, sha256

import numpy as np
import pytest
from psi_federation import Federation, numbered

from hdpvfl_mq.psi.active import ActiveSession
from hdpvfl_mq.psi.code import LENGTH, encode_rows
from hdpvfl_mq.psi.consistency import MASK_BYTES, PROOF_BYTES
from hdpvfl_mq.psi.curve import blinding_scalar, hash_to_curve, multiply, secret_scalar
from hdpvfl_mq.psi.elements import hash_ids, padded_size
from hdpvfl_mq.psi.match import differences, zero_share
from hdpvfl_mq.psi.oprf import hash_rows
from hdpvfl_mq.psi.ot_oprf import Choice, OtQuery, _as_words, _messages, _streams
from hdpvfl_mq.psi.passive import PassiveSession
from hdpvfl_mq.psi.store import Cells, locate, look_up
from hdpvfl_mq.psi.stream import Words, derive, permute_pairs

pytestmark = pytest.mark.seconds

METHODS = ["ecdh", "oprf"]
COMMON = numbered(range(20))
SECRET = numbered(range(20, 120))  # the victim has these, the attacker's own set does not
ABSENT = numbered(range(1020, 1120))
Test = Callable[[bytes], bool]


def _advantage(says_present: Test, *, every: int = 1) -> float:
    """Share of right answers above one half, times two: 0 by chance, 1 for a break.

    A search for traces is not a matter of chance, so it needs only every third guess.
    """
    present, absent = SECRET[::every], ABSENT[::every]
    hits = sum(map(says_present, present)) / len(present)
    false_alarms = sum(map(says_present, absent)) / len(absent)
    return hits - false_alarms


def _hashes(guess: bytes, salts: Sequence[bytes]) -> Iterator[bytes]:
    for salt in salts:
        yield sha256(salt + guess).digest()
        yield blake2b(guess, key=salt, digest_size=16).digest()
        yield permute_pairs(salt, hash_ids([guess], salt)).tobytes()


def _traces(guess: bytes, federation: Federation, name: str | None) -> Iterator[bytes]:
    """Every string that the guess could have left in what this party (None: the broker) saw."""
    seed = federation.public_seed
    element = hash_ids([guess], seed)
    point = hash_to_curve(element.tobytes())
    yield from (guess, element.tobytes(), point)
    yield from _hashes(guess, [bytes(32), seed])
    if name is None:
        return
    session = federation.sessions[name]
    keys = [link.shared_key for link in session.links.values()]
    root = session._root(federation.works[name])
    yield from _hashes(guess, [*keys, root])
    yield zero_share(element, keys, 0).tobytes()
    for key in keys:
        yield zero_share(element, [key], 0).tobytes()
    function_key = derive(root, "oprf", seed)
    scalars = [
        *blinding_scalar(derive(function_key, "dh blinding", 0)),
        secret_scalar(derive(function_key, "dh key", 0)),
    ]
    for scalar in scalars:
        multiplied = multiply(scalar, point)
        yield multiplied
        yield hash_rows(np.frombuffer(multiplied, "<u8").reshape(1, 4), element).tobytes()


def _finds_traces(federation: Federation, name: str | None) -> Test:
    if name is None:
        seen = b"|".join(each.message.payload for each in federation.delivered)
    else:
        seen = b"|".join(federation.seen_by(name))
    return lambda guess: any(trace in seen for trace in _traces(guess, federation, name))


@cache
def _two_parties(method: str, victim: int) -> Federation:
    """A run that tests only read."""
    sets = [COMMON + numbered(range(3000, 3100))] * 2
    sets[victim] = COMMON + SECRET
    return Federation(method, sets).run().check()


@cache
def _three_parties(method: str) -> Federation:
    """party1 is the victim; the others share only the common ids with it."""
    own = [numbered(range(2000 + 100 * k, 2100 + 100 * k)) for k in range(3)]
    return Federation(method, [COMMON + own[0], COMMON + SECRET, COMMON + own[2]]).run().check()


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("attacker", ["party0", "party2", None])
def test_no_view_lets_a_guess_be_tested(method: str, attacker: str | None) -> None:
    federation = _three_parties(method)
    assert _advantage(_finds_traces(federation, attacker), every=3) == 0


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(("victim", "attacker"), [(0, "party1"), (1, "party0"), (0, None)])
def test_no_view_of_two_parties_lets_a_guess_be_tested(
    method: str, victim: int, attacker: str | None
) -> None:
    federation = _two_parties(method, victim)
    assert _advantage(_finds_traces(federation, attacker), every=3) == 0


def test_the_same_attacker_breaks_a_salted_hash() -> None:
    federation = _three_parties("ecdh")
    salt = federation.public_seed
    strawman = b"|".join(sha256(salt + each).digest() for each in COMMON + SECRET)
    assert _advantage(lambda guess: any(t in strawman for t in _hashes(guess, [salt]))) == 1


def test_the_same_attacker_finds_what_it_may_know() -> None:
    """The common ids do leave a trace at a passive party: the search itself works."""
    finds = _finds_traces(_three_parties("oprf"), "party2")
    assert all(map(finds, COMMON))


def _active_evaluation(federation: Federation) -> Callable[[bytes], bytes]:
    """What the active party of oprf gets if it uses its rows at an id it did not ask for."""
    active = federation.sessions["party0"]
    assert isinstance(active, ActiveSession)
    query = active._query(federation.works["party0"], 0)
    assert isinstance(query, OtQuery)
    seed = derive(federation.public_seed, "query store", 0)
    length = MASK_BYTES + query.codewords.shape[1]
    table = _as_words(_streams(active.agreed["party1"].zeros, 0, length))

    def evaluate(guess: bytes) -> bytes:
        element = hash_ids([guess], federation.public_seed)
        row = look_up(table, locate(element, len(query.elements), seed))
        return hash_rows(row, element).tobytes()

    return evaluate


def test_active_party_cannot_evaluate_at_ids_it_did_not_ask() -> None:
    federation = _two_parties("oprf", 1)
    seen = b"|".join(federation.seen_by("party0"))
    evaluate = _active_evaluation(federation)
    assert all(evaluate(each) in seen for each in COMMON)
    assert _advantage(lambda guess: evaluate(guess) in seen) == 0


def _distances(federation: Federation, *, is_padded: bool) -> Callable[[bytes], int]:
    """Distance of the query, rid of the columns a passive party knows, from a guess's codeword."""
    passive = federation.sessions["party1"]
    assert isinstance(passive, PassiveSession)
    secret = passive.agreed
    assert isinstance(secret, Choice)
    queries = [each.message for each in federation.delivered if each.message.stage == "query"]
    (message,) = queries
    link = passive.links["party0"]
    query = link.unseal((message.stage, message.index, message.last, message.meta), message.payload)
    assert query is not None
    columns = np.frombuffer(query[:-PROOF_BYTES], np.uint8).reshape(LENGTH, -1)
    columns = columns ^ _streams(secret.keys, 0, columns.shape[1])
    if not is_padded:  # as if the other key of every transfer were known, too
        active = federation.sessions["party0"]
        assert isinstance(active, ActiveSession)
        keys = active.agreed["party1"]
        other = [(keys.zeros if bit else keys.ones)[n] for n, bit in enumerate(secret.bits)]
        columns ^= _streams(other, 0, columns.shape[1])
    seed = derive(federation.public_seed, "query store", 0)
    count = passive._capacity("party0")
    table = _as_words(columns)

    def distance(guess: bytes) -> int:
        element = hash_ids([guess], federation.public_seed)
        row = look_up(table, locate(element, count, seed))
        codeword = encode_rows(_messages(element, seed), b"\xff" * 64)
        return int(np.bitwise_count(row ^ codeword).sum())

    return distance


def test_passive_party_cannot_test_a_guess_against_the_query() -> None:
    federation = _two_parties("oprf", 0)
    distance = _distances(federation, is_padded=True)
    assert min(map(distance, SECRET)) > LENGTH // 3
    assert abs(_advantage(lambda guess: distance(guess) < LENGTH // 2)) < 0.3  # 4 deviations
    known = _distances(federation, is_padded=False)
    assert _advantage(lambda guess: known(guess) == 0) == 1


@pytest.mark.parametrize("method", METHODS)
def test_active_party_learns_nothing_pairwise(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of ids that only one passive party shares with it, against ids that none does."""
    mine = COMMON + SECRET + ABSENT
    federation = Federation(method, [mine, COMMON + SECRET, COMMON])
    of_party1 = derive(federation.public_seed, "answer store", "party1", 0)
    elements = hash_ids(mine, federation.public_seed)
    wanted = locate(elements, padded_size(len(COMMON + SECRET)), of_party1).sparse
    decoded: dict[bytes, bytes] = {}

    def note(outputs: Words, packed: bytes, cells: Cells | None) -> Words:
        found = differences(outputs, packed, cells)
        if cells is not None and (cells.sparse[: len(mine)] == wanted).all():
            decoded.update(zip(mine, map(np.ndarray.tobytes, found), strict=False))
        return found

    monkeypatch.setattr("hdpvfl_mq.psi.active.differences", note)
    federation.run().check()
    ones = {guess: int.from_bytes(value, "big").bit_count() for guess, value in decoded.items()}
    assert abs(_advantage(lambda guess: ones[guess] > 64)) < 0.3
    assert abs(_advantage(lambda guess: decoded[guess][0] < 128)) < 0.3
    pair_key = federation.sessions["party2"].links["party1"].shared_key

    def share(guess: bytes) -> bytes:
        element = hash_ids([guess], federation.public_seed)
        return zero_share(element, [pair_key], 0).tobytes()

    assert _advantage(lambda guess: decoded[guess] == share(guess)) == 1  # what collusion breaks
