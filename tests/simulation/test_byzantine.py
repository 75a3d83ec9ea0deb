"""One liar with valid keys among honest parties, from seeds: what may never come of it.

No honest party reports a completed run with a wrong model, no ledger under-counts, nobody hangs,
and an audit of the honest journals never finds an honest party at fault.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest

from hdpvfl_mq.audit.audit import Verdict, audit, exit_code
from hdpvfl_mq.audit.evidence import Evidence
from hdpvfl_mq.errors import IntegrityError
from hdpvfl_mq.journal import chain
from hdpvfl_mq.privacy.ledger_store import Ledger
from hdpvfl_mq.wire.codec import decode_body, decode_header
from parties.phases import Joining, Starting
from schemas.config import RunManifest
from schemas.ids import COORDINATOR
from schemas.messages import Releasing
from schemas.methods import Method, PrivateModel
from schemas.privacy import ReleaseBooked
from schemas.records import EnvelopeReceived, EnvelopeSent, OperatorRequest, TimerFired
from scripts import verify_journal
from tests.evidence import evidence_of, only, write_run
from tests.federation import Federation, tables
from tests.simulation.byzantine import ByzantineFederation, Honestly, small_manifest

QUICK, BLOCKS, SOAK = 40, 10, 5000
SOAK_FROM = QUICK  # the first seed of `make soak`
# The private model by its two kinds of noise: seeds in a quick run and in `make soak`.
PRIVATE = (PrivateModel(), PrivateModel(noise="bounded"))
FEW, MORE = 10, 500


@cache
def calm(settings: RunManifest):
    federation = Federation(settings, tables(rows=50))
    simulation = federation.simulate()
    return federation.weights(simulation)


def lived(seed: int, method: Method | None = None) -> tuple[ByzantineFederation, Honestly]:
    federation = ByzantineFederation(small_manifest(method), tables(rows=50), seed=seed)
    return federation, federation.lived_through()


def check(seed: int, *, twice: bool = True, method: Method | None = None) -> int:
    """One seed; returns how many lies were told. `twice`: both verifiers read the journals."""
    federation, simulation = lived(seed, method)
    try:
        _nobody_hangs(federation, simulation)
        _models_are_right(federation, simulation)
        _ledgers_count_all(federation)
        evidence = evidence_of(federation, only=federation.honest)
        verdicts = audit(evidence)
        _nobody_honest_is_blamed(federation, verdicts)
        if twice:
            _both_verifiers_agree(evidence, verdicts)
    except AssertionError as broken:
        text = f"seed {seed}: {federation.liar} lies, {federation.habits}: {broken}"
        raise AssertionError(text) from broken
    return len(federation.lies)


def _nobody_hangs(federation: ByzantineFederation, simulation: Honestly) -> None:
    """Every honest node has an outcome by the deadline, or half a minute later by its own clock.

    A party that a lying coordinator offers no run has no deadline of its own: its service asks it
    to withdraw then, and it ends in seconds.
    """
    assert not any(isinstance(stop, IntegrityError) for stop in simulation.stopped.values())
    for party in federation.honest:
        node = simulation.nodes[party]
        if federation.liar == COORDINATOR and isinstance(node.state, Starting | Joining):
            node.turn((), (OperatorRequest(request="withdraw"),))
            assert "closing" in node.armed, f"{party} does not leave"
            node.turn((), (TimerFired(timer="closing"),))
        assert node.outcome or party in simulation.stopped, f"{party} still waits"


def _models_are_right(federation: ByzantineFederation, simulation: Honestly) -> None:
    for party in federation.honest:
        node = simulation.nodes[party]
        if party == COORDINATOR or node.outcome != "completed":
            continue
        trained = node.state.trained
        assert trained is not None, f"{party} completed without a round"
        assert trained.is_done, f"{party} completed without all its rounds"
        if not federation.habits.values:
            np.testing.assert_array_equal(
                trained.rounds.final_weights,
                calm(federation.manifest)[party],
                err_msg=f"{party}'s model",
            )


def _ledgers_count_all(federation: ByzantineFederation) -> None:
    """What left was booked before, under its id, with its payload."""
    for party in federation.honest:
        if party == COORDINATOR:
            continue
        booked = {
            entry.event.release_id: entry.event
            for row in Ledger(federation.ledgers[party], party).entries()
            for entry in row
            if isinstance(entry, ReleaseBooked)
        }
        payloads: dict[str, bytes] = {}
        for message in _released(federation, party):
            release = message.release
            assert booked.get(release.release_id) == release.event, "a release is not booked"
            known = payloads.setdefault(release.release_id, release.tensor.data)
            assert known == release.tensor.data, "two payloads under one release id"


def _released(federation: ByzantineFederation, party: str):
    for index, stored, _ in federation.journals[party].records():
        for effect in chain.decode(stored, index).effects:
            if isinstance(effect, EnvelopeSent):
                message = decode_body(decode_header(effect.frames), effect.frames)
                if isinstance(message, Releasing):
                    yield message


def _nobody_honest_is_blamed(
    federation: ByzantineFederation, verdicts: tuple[Verdict, ...]
) -> None:
    """A finding names the liar, or only records that the liar's own envelopes have filled."""
    for verdict in verdicts:
        assert set(re.findall(r"at fault: (\w+)", verdict.found)) <= {federation.liar}, verdict
        if verdict.passed or federation.liar in verdict.found:
            continue
        named = {party for party in federation.honest if party in verdict.found}
        places = dict(re.findall(r"([a-z]+), record (\d+)", verdict.found))
        for party in named:
            sender = _sender_of(federation, party, int(places.get(party, -1)))
            assert sender == federation.liar, verdict


def _both_verifiers_agree(evidence: Evidence, verdicts: tuple[Verdict, ...]) -> None:
    """On the honest journals together and on each of them alone."""
    _second_agrees(evidence, verdicts)
    for party in evidence.transcripts:
        alone = only(evidence, party, ledgers=True)
        _second_agrees(alone, audit(alone))


def _second_agrees(evidence: Evidence, verdicts: tuple[Verdict, ...]) -> None:
    with TemporaryDirectory() as folder:
        found = verify_journal.verify(write_run(evidence, Path(folder)))
    second = 0 if not found else 5 if min(found) <= 5 else 1
    assert exit_code(verdicts) == second, f"{sorted(evidence.transcripts)}: {found}"


def _sender_of(federation: ByzantineFederation, party: str, index: int) -> str:
    """Whose envelope a record took in."""
    rows = {i: stored for i, stored, _ in federation.journals[party].records()}
    given = chain.decode(rows[index], index).input if index in rows else None
    return decode_header(given.frames).sender if isinstance(given, EnvelopeReceived) else party


@pytest.mark.parametrize("block", range(BLOCKS))
def test_liars_break_no_promise(block):
    lies = sum(
        check(seed, twice=seed % 5 == 0)  # all in `make soak`: it takes as long as the rest
        for seed in range(block * QUICK // BLOCKS, (block + 1) * QUICK // BLOCKS)
    )
    assert lies > QUICK // BLOCKS  # or the test shows nothing


@pytest.mark.parametrize("seed", [15, 75, 299, 302, 1348, 3926])
def test_liars_that_broke_a_promise_once(seed):
    """302: a finding about a manifest of run "bank" named nobody but that honest party.

    15, 75, 299: only one verifier found an order before the rows, a false epoch, no common row.

    1348: a manifest with -0.0 for 0.0 is equal and has another digest, which is no party's fault
    but that of who offered it. 3926: a liar's early row count made an honest party's reserve differ
    from the plan of the evidence.
    """
    check(seed)


# A count of rows beyond the limits, prices of another plan (three), a plan beyond the schedule, a
# value beyond its bound, more rounds reported than allowed: the two verifiers disagreed on them.
@pytest.mark.parametrize("seed", [983, 1334, 1753, 3994, 1685, 4608, 439])
def test_liars_that_many_seeds_found_break_no_promise(seed):
    check(seed)


@pytest.mark.slow  # make soak
@pytest.mark.parametrize("block", range(50))
def test_5000_liars_break_no_promise(block):
    for seed in range(SOAK_FROM + block * SOAK // 50, SOAK_FROM + (block + 1) * SOAK // 50):
        check(seed)


@pytest.mark.parametrize("method", PRIVATE, ids=lambda method: method.noise)
def test_liars_break_no_promise_of_the_private_model(method):
    assert sum(check(seed, twice=seed % 5 == 0, method=method) for seed in range(FEW)) > FEW


@pytest.mark.slow  # make soak
@pytest.mark.parametrize("method", PRIVATE, ids=lambda method: method.noise)
@pytest.mark.parametrize("block", range(10))
def test_1000_liars_break_no_promise_of_the_private_model(block, method):
    for seed in range(FEW + block * MORE // 10, FEW + (block + 1) * MORE // 10):
        check(seed, method=method)


def test_a_liar_is_the_same_from_the_same_seed():
    lives = [lived(3)[0] for _ in range(2)]
    journals = [
        {p: list(j.records()) for p, j in life.journals.items() if p != life.liar} for life in lives
    ]
    assert journals[0] == journals[1]
    assert any(
        isinstance(chain.decode(r, i).input, EnvelopeReceived)
        for i, r, _ in journals[0][COORDINATOR]
    )
