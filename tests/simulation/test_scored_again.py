"""A loss of power takes a query from account and ledger, and the journal has its answer."""

from __future__ import annotations

import sqlite3

import pytest

from hdpvfl_mq.audit.audit import audit
from hdpvfl_mq.errors import OperatorError
from hdpvfl_mq.journal import chain
from hdpvfl_mq.privacy.scored_people import ScoredPeople
from hdpvfl_mq.runtime.simulation import Killed
from hdpvfl_mq.wire.codec import decode_header
from schemas.records import Charged, EnvelopeReceived
from tests.evidence import evidence_of
from tests.federation import policy
from tests.simulation.scoring import PASSIVES, session, trained
from tests.simulation.test_scoring_attacks import count, places, run_commands, said_by_shop
from tests.simulation.test_used_query_numbers import commands, counted


@pytest.fixture(scope="module")
def models():
    return trained()[1]


def copy_of(file):
    """A copy of a database that is in use; `deserialize` into one has ended the interpreter."""
    copy = sqlite3.connect(":memory:")
    file.backup(copy)
    return copy


def lose_power(ran, monkeypatch, meanwhile=lambda: None):
    """Kill shop behind its first journalled answer; account and ledger are as before the query."""
    files = [ran.federation.scored["shop"], ran.federation.ledgers["shop"]]
    journal, charge = ran.federation.journals["shop"], ScoredPeople.charge
    commit, before, died = journal.commit, [], []

    def charging(people, asked, limits):
        if people._db is files[0] and not before:
            before.extend(map(copy_of, files))
        return charge(people, asked, limits)

    def dying(records):
        commit(records)
        inputs = [chain.decode(stored, index).input for index, stored, _ in records]
        if not died and any(isinstance(given, Charged) for given in inputs):
            died.append(True)
            for file, copy in zip(files, before, strict=True):
                copy.backup(file)
            meanwhile()
            raise Killed("shop")

    monkeypatch.setattr(ScoredPeople, "charge", charging)
    monkeypatch.setattr(journal, "commit", dying)
    return died


def test_a_query_that_only_the_journal_has_is_counted_before_its_answer_leaves(models, monkeypatch):
    often = {p: policy(scoring="disclosed", queries_max=2) for p in PASSIVES}
    ran = session(models, policies=often)
    died = lose_power(ran, monkeypatch)
    run_commands(ran, commands(places(0, 1, 2)))
    assert died
    assert [count(reply) for reply in said_by_shop(ran)] == [3, 3]
    assert counted(ran) == 6
    assert [verdict.found for verdict in audit(evidence_of(ran.federation)) if verdict.found] == []


def test_an_answer_that_is_beyond_the_limits_by_now_is_not_sent(models, monkeypatch):
    """Another session may have asked for the same people before this one was read again."""
    once = {p: policy(scoring="disclosed", queries_max=1) for p in PASSIVES}
    ran = session(models, policies=once)
    lowered = once["shop"].model_copy(update={"queries_max": 0})
    lose_power(ran, monkeypatch, lambda: ran.federation.policies.update(shop=lowered))
    with pytest.raises(OperatorError, match="was granted and not counted before the power failed"):
        run_commands(ran, commands(places(0, 1, 2)))
    heard = (chain.decode(*row[1::-1]).input for row in ran.federation.journals["bank"].records())
    frames = (given.frames for given in heard if isinstance(given, EnvelopeReceived))
    replies = [h.sender for h in map(decode_header, frames) if h.kind == "score_reply"]
    assert "shop" not in replies
