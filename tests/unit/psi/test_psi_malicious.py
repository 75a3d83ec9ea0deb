"""A malicious active party, run through the sessions: it must not get at a passive party's secret.

The attack: shift the codeword that an own, common id finds in the query by a dozen chosen bits. The
value that the passive party then sends for this id depends on the same dozen bits of its secret,
and 4,096 guesses find them. Forty common ids give all 480 bits, and with them the active party
evaluates the passive party's function at any id of a dictionary.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest
from psi_federation import Federation, numbered

from hdpvfl_mq.errors import CheatingError
from hdpvfl_mq.psi import methods, ot_oprf
from hdpvfl_mq.psi.active import ActiveSession
from hdpvfl_mq.psi.bits import subset_xors, transpose_bits
from hdpvfl_mq.psi.code import LENGTH, ROW_BYTES, encode_columns, encode_rows
from hdpvfl_mq.psi.consistency import MASK_BYTES, PROOF_BYTES, challenge, is_proved, prove
from hdpvfl_mq.psi.elements import find_pairs, hash_ids
from hdpvfl_mq.psi.oprf import hash_rows
from hdpvfl_mq.psi.ot_oprf import Choice, OtAsker, OtQuery, _as_words, _messages, _streams
from hdpvfl_mq.psi.passive import PassiveSession
from hdpvfl_mq.psi.store import locate, look_up, solve
from hdpvfl_mq.psi.stream import Octets, Words, derive, expand

pytestmark = pytest.mark.seconds

GUESSED_BITS = 12
COMMON = numbered(range(LENGTH // GUESSED_BITS))
VICTIM = COMMON + numbered(range(1_000, 1_200))
DICTIONARY = numbered(range(1_000, 1_400))  # the victim holds the first half


Change = Callable[[OtQuery], OtQuery]


Attack = Callable[..., Federation]


@pytest.fixture
def attacked(monkeypatch: pytest.MonkeyPatch) -> Attack:
    """A federation whose active party asks with changed queries, and proves what it can of them."""

    def federation(change: Change, parties: int = 2) -> Federation:
        class Cheating(OtAsker):
            def prepare(self, bucket: int, elements: Words) -> OtQuery:
                return change(super().prepare(bucket, elements))

        monkeypatch.setattr(methods, "OtAsker", Cheating)
        own = COMMON + numbered(range(5_000, 5_100))
        return Federation("oprf", [own, *[VICTIM] * (parties - 1)])

    return federation


def _shifted(honest: OtQuery) -> OtQuery:
    """What the first forty ids find, shifted by twelve bits each."""
    elements = honest.elements
    shifts = np.zeros((len(elements), ROW_BYTES), dtype=np.uint8)
    shifts[: len(COMMON)] = _shifts()
    lanes = shifts.view("<u8").reshape(len(elements), 4, 2)
    tables = [
        solve(honest.cells, np.ascontiguousarray(lanes[:, lane]), derive(bytes(32), lane))
        for lane in range(4)
    ]
    rows = np.hstack([each.view(np.uint8).reshape(len(each), 16) for each in tables])
    columns = transpose_bits(np.ascontiguousarray(rows))[:LENGTH]
    return replace(honest, codewords=honest.codewords ^ columns)


def _shifts() -> Octets:
    """Row i has bits 12 i .. 12 i + 11."""
    bits = np.repeat(np.eye(len(COMMON), dtype=np.uint8), GUESSED_BITS, axis=1)
    rows = np.zeros((len(COMMON), ROW_BYTES), dtype=np.uint8)
    rows[:, : LENGTH // 8] = np.packbits(bits, axis=1, bitorder="little")
    return rows


def _secret(federation: Federation) -> Choice:
    passive = federation.sessions["party1"]
    assert isinstance(passive, PassiveSession)
    assert isinstance(passive.agreed, Choice)
    return passive.agreed


def _query(federation: Federation) -> OtQuery:
    active = federation.sessions["party0"]
    assert isinstance(active, ActiveSession)
    query = active._query(federation.works["party0"], 0)
    assert isinstance(query, OtQuery)
    return query


def _stages_from(federation: Federation, sender: str) -> list[str]:
    return [each.message.stage for each in federation.delivered if each.sender == sender]


def _own_rows(federation: Federation) -> Octets:
    active, query = federation.sessions["party0"], _query(federation)
    assert isinstance(active, ActiveSession)
    length = MASK_BYTES + query.codewords.shape[1]
    return _streams(active.agreed["party1"].zeros, query.bucket, length)


def _recovered_secret(federation: Federation, values: Words) -> bytes:
    """The sender's bits, a dozen from each shifted id."""
    query = _query(federation)
    honest = look_up(_as_words(_own_rows(federation)), query.cells, 0, len(COMMON))
    secret = np.zeros(ROW_BYTES // 8, dtype=np.uint64)
    for row, shift, element in zip(honest, _shifts(), query.elements, strict=False):
        places = np.flatnonzero(np.unpackbits(shift, bitorder="little"))
        singles = np.zeros((GUESSED_BITS, 8 * ROW_BYTES), dtype=np.uint8)
        singles[np.arange(GUESSED_BITS), places] = 1
        guesses = subset_xors(np.packbits(singles, axis=1, bitorder="little").view("<u8"))
        outputs = hash_rows(row ^ guesses, np.repeat(element[np.newaxis], len(guesses), 0))
        secret |= guesses[np.flatnonzero(find_pairs(outputs, values) >= 0)[0]]
    return secret.tobytes()


def _evaluated(federation: Federation, secret: bytes) -> Words:
    """The victim's function at all ids of the dictionary, from its secret."""
    query, seed = _query(federation), federation.public_seed
    bits = np.unpackbits(np.frombuffer(secret, np.uint8), bitorder="little")[:LENGTH]
    columns = _own_rows(federation).copy()
    columns[:, MASK_BYTES:] ^= bits[:, np.newaxis] * query.codewords
    elements, store = hash_ids(DICTIONARY, seed), derive(seed, "query store", 0)
    rows = look_up(_as_words(columns), locate(elements, len(query.elements), store))
    return hash_rows(rows ^ encode_rows(_messages(elements, store), secret), elements)


def test_without_the_check_the_attack_finds_the_secret_and_every_id(
    attacked: Attack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The attack is a real one: it fails because of the check and of nothing else."""
    monkeypatch.setattr(ot_oprf, "is_proved", lambda *_: True)
    federation = attacked(_shifted).run()
    sent = federation.seen_by("party0")[-1]
    values = np.frombuffer(sent, "<u8").reshape(-1, 2)
    secret = _recovered_secret(federation, values)
    assert secret == _secret(federation).mask
    found = find_pairs(_evaluated(federation, secret), values) >= 0
    assert found.tolist() == [True] * 200 + [False] * 200


@pytest.mark.parametrize("parties", [2, 3])
def test_a_shifted_query_is_noticed_before_anything_is_answered(
    attacked: Attack, parties: int
) -> None:
    federation = attacked(_shifted, parties)
    with pytest.raises(CheatingError, match=r"^party0 .*stage query$"):
        federation.run()
    for name in federation.names[1:]:
        assert set(_stages_from(federation, name)) <= {"hello", "choose"}


def _turned(*places: int) -> Change:
    """One bit of each of these columns is wrong, in the last cell of the store."""

    def change(honest: OtQuery) -> OtQuery:
        codewords = honest.codewords.copy()
        codewords[list(places), -1] ^= 128
        return replace(honest, codewords=codewords)

    return change


def test_a_guess_of_secret_bits_passes_only_if_it_is_right(attacked: Attack) -> None:
    """About half of the guesses of one bit, none of a dozen: each bit halves the chance."""
    passed = []
    for place in range(6):
        federation = attacked(_turned(place))
        with suppress(CheatingError):
            federation.run().check()
            passed.append(place)
        assert (place in passed) == (not _secret(federation).bits[place])
    assert 0 < len(passed) < 6
    with pytest.raises(CheatingError):
        attacked(_turned(*range(12))).run()


def _proof_setting() -> tuple[Octets, Octets, Octets, Octets]:
    """T, messages, secret bits and Q of an honest query of 100 bytes a column."""

    def random(label: str, rows: int, length: int = 100) -> Octets:
        octets = expand(derive(bytes(32), label), rows * length)
        return np.frombuffer(octets, np.uint8).reshape(rows, length)

    rows, messages = random("rows", LENGTH), random("messages", 80)
    bits = random("bits", LENGTH, 1)[:, 0] & 1
    answered: Octets = (rows ^ bits[:, np.newaxis] * encode_columns(messages)).astype(np.uint8)
    return rows, messages, bits.astype(np.uint8), answered


def test_a_proof_holds_for_its_challenge_and_query_alone() -> None:
    rows, messages, bits, theirs = _proof_setting()
    proof = prove(b"c" * 32, rows, messages)
    assert len(proof) == PROOF_BYTES
    assert is_proved(b"c" * 32, theirs, bits, proof)
    assert not is_proved(b"d" * 32, theirs, bits, proof)
    for place in (0, PROOF_BYTES // 2, PROOF_BYTES - 1):
        changed = bytearray(proof)
        changed[place] ^= 1
        assert not is_proved(b"c" * 32, theirs, bits, bytes(changed))
    for row in range(76, 80):  # bits that are not encoded are not shown
        other = messages.copy()
        other[row] ^= 255
        assert prove(b"c" * 32, rows, other) == proof


def test_the_challenge_depends_on_the_whole_query_and_on_what_went_before() -> None:
    known = {
        challenge(transcript, bucket, query)
        for transcript in (bytes(32), b"t" * 32)
        for bucket in (0, 1)
        for query in (b"abc", b"abd", b"xbc", b"ab")
    }
    assert len(known) == 16


def test_masks_hide_the_messages_from_each_peer_and_from_peers_together() -> None:
    """Messages of the mask are the peer's own, so what two proofs show has nothing in common."""
    own = COMMON + numbered(range(5_000, 5_100))
    federation = Federation("oprf", [own, VICTIM, VICTIM]).run().check()
    query, active = _query(federation), federation.sessions["party0"]
    assert isinstance(active, ActiveSession)
    assert query._mask("party1").tobytes() != query._mask("party2").tobytes()
    agreed = active.agreed["party1"]
    shown = [
        each.sent_to("party1", agreed)[-PROOF_BYTES:-32]
        for each in (query, replace(query, secret=bytes(32)))
    ]
    bits = int.from_bytes(bytes(a ^ b for a, b in zip(*shown, strict=True)), "big").bit_count()
    assert abs(bits - 4 * len(shown[0])) < 6 * (2 * len(shown[0])) ** 0.5
