"""A number that the account of scored people has used for one query answers no other query."""

from __future__ import annotations

from contextlib import suppress

import numpy as np
import pytest

from hdpvfl_mq.audit.audit import audit
from hdpvfl_mq.errors import NetworkError
from hdpvfl_mq.journal import chain
from hdpvfl_mq.runtime import simulation
from hdpvfl_mq.runtime.simulation import Killed, Simulation
from hdpvfl_mq.wire.codec import decode_body, decode_header, encode_body
from hdpvfl_mq.wire.signing import envelope_digest, sign
from schemas.commands import AskScores, EndScoring, OperatorCommand
from schemas.privacy import Budget
from schemas.records import Charged
from schemas.scoring import ScoreQuery
from schemas.tensor import Tensor
from scripts import verify_journal
from tests.evidence import evidence_of, write_run
from tests.federation import policy
from tests.simulation.scoring import PASSIVES, following, session, trained
from tests.simulation.test_scoring_attacks import count, places, run_commands, said_by_shop


@pytest.fixture(scope="module")
def models():
    return trained()[1]


def commands(asked):
    return [
        OperatorCommand(command=AskScores(places=asked)),
        OperatorCommand(command=AskScores(places=asked)),
        OperatorCommand(command=EndScoring()),
    ]


def counted(ran):
    return ran.federation.scored["shop"].execute("SELECT sum(queries) FROM person").fetchone()[0]


def cost(ran):
    found = ran.federation.scored["shop"].execute("SELECT max(mu2_units) FROM person")
    return found.fetchone()[0]


def test_other_people_under_the_numbers_of_an_earlier_session_are_refused(models, tmp_path):
    """Bug: a session with the name of one whose journal was deleted scored people for nothing."""
    often = {p: policy(scoring="disclosed", queries_max=2) for p in PASSIVES}
    first = session(models, policies=often)
    run_commands(first, commands(places(0, 1, 2)))
    assert [count(reply) for reply in said_by_shop(first)] == [3, 3]
    before = counted(first)
    again = following(first, models, policies=often, seed=77)  # others stand at these places
    run_commands(again, commands(places(0, 1, 2)))
    assert counted(first) == before
    replies = said_by_shop(again)
    assert [count(reply) for reply in replies] == [0, 0]
    assert "has asked for others before" in replies[0].reason
    evidence = evidence_of(again.federation)
    assert [verdict.found for verdict in audit(evidence) if verdict.found] == []
    assert verify_journal.verify(write_run(evidence, tmp_path)) == {}


def test_fresh_noise_for_the_same_people_is_paid_again_or_refused(models):
    """Bug: whoever deleted a session's journal gave everybody new noise at no cost."""
    noised = policy(scoring="noised", lifetime=Budget(epsilon=5.0, delta=0.01))
    terms = {
        "policies": dict.fromkeys(PASSIVES, noised),
        "scores": "noised",
        "budget": Budget(epsilon=1.0, delta=0.01),
    }
    first = session(models, **terms)
    run_commands(first, commands(places(0, 1, 2)))
    paid = cost(first)
    again = following(first, models, **terms)
    secret = again.federation.secret
    # A process that finds no journal draws a new secret (parties/process/build.py).
    again.federation.secret = lambda party, purpose: secret(
        party, purpose + b" anew" * (purpose == b"noise")
    )
    run_commands(again, commands(places(0, 1, 2)))
    assert paid == cost(first)
    assert [count(reply) for reply in said_by_shop(again)] == [0, 0]


def test_the_same_bytes_of_another_type_are_another_query(models, monkeypatch):
    """Bug: after a kill, places of another width were taken for the query that was counted."""
    once = {p: policy(scoring="disclosed", queries_max=1) for p in PASSIVES}
    ran = session(models, rows=300, policies=once, answer_within_s=0.2, partner_away="without")
    shop, died = ran.federation.journals["shop"], []
    commit, deliver = shop.commit, Simulation._deliver

    def dying(records):
        inputs = [chain.decode(stored, index).input for index, stored, _ in records]
        if not died and any(isinstance(given, Charged) for given in inputs):
            died.append(True)
            raise Killed("shop")  # the account is on disk, the journal is not
        commit(records)

    def forged(running, party, life, frames):
        header = decode_header(frames)
        if party == "shop" and died and header.kind == "score_query":
            told = decode_body(header, frames)
            if not told.last:
                other = Tensor(dtype="<i2", shape=(1,), data=told.places.data)  # place 256
                query = ScoreQuery(number=told.number, last=False, places=other)
                body, arrays = encode_body(query)
                digest = envelope_digest(frames[0], body, arrays)
                signature = sign(ran.federation.keys["bank"], digest)
                frames = (frames[0], signature, body, *arrays)
        deliver(running, party, life, frames)

    monkeypatch.setattr(shop, "commit", dying)
    monkeypatch.setattr(Simulation, "_deliver", forged)
    monkeypatch.setattr(simulation, "PATIENCE_S", 60.0)
    asked = Tensor.of(np.array([0, 1], dtype=np.int8))
    ask = OperatorCommand(command=AskScores(places=asked))
    with suppress(NetworkError):  # bank does not know what was forged in its name, and waits
        run_commands(ran, [ask, OperatorCommand(command=EndScoring())])
    assert died
    assert [count(reply) for reply in said_by_shop(ran)] == [0]
    assert counted(ran) == 2
