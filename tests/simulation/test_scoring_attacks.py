"""A hostile active party in a scoring session, and accounts that were put back."""

from __future__ import annotations

import sqlite3
from dataclasses import replace

import numpy as np
import pytest

from hdpvfl_mq.errors import IntegrityError, PeerError
from hdpvfl_mq.machine import Charge, Charged, Received, Send
from hdpvfl_mq.privacy.mechanism import SEAL_WORDS, unsealed
from parties.phases import Training
from parties.rounds.scoring import QUERY_NUMBER_MAX, ScoringActive, ScoringPassive
from schemas.commands import AskScores, EndScoring, OperatorCommand
from schemas.methods import PrivateModel
from schemas.privacy import Budget, LedgerHead
from schemas.scoring import ScoreQuery, ScoreReply
from schemas.tensor import Tensor
from tests.evidence import evidence_of
from tests.federation import Federation, manifest, policy, tables
from tests.simulation.scoring import PASSIVES, following, session, trained

HEAD = LedgerHead(sequence=1, digest=bytes(32))


@pytest.fixture(scope="module")
def models():
    return trained()[1]


@pytest.fixture(scope="module")
def second_models():
    """Another training on the same people: other weights."""
    return trained(run="second-run", seed=9)[1]


@pytest.fixture(scope="module")
def open_session(models):
    """A passive party's role and its state in the middle of a session."""
    ran, seen = session(models), {}

    def notice(node):
        if isinstance(node.state, Training) and not node.state.is_done:
            seen["shop"] = (node.role, node.state)

    ran.federation.operators["shop"] = notice
    ran.run()
    return seen["shop"]


def ask(number, places, **fields):
    return Received("bank", ScoreQuery(number=number, last=False, places=places, **fields))


def places(*numbers):
    return Tensor.of(np.array(numbers, dtype=np.int64))


BEYOND = {
    "a place beyond the session": places(3, 77),
    "a place before the first": places(-1, 3),
    "the same place twice": places(4, 4),
    "places that fall": places(5, 4),
    "places whose differences overflow": places(0, 2**63 - 1, -2, 1),
    "nobody": places(),
    "numbers that are no places": Tensor.of(np.array([0.5])),
    "a matrix": Tensor.of(np.array([[1], [2]])),
    "too many": Tensor.of(np.arange(2**16 + 1)),
}


@pytest.mark.parametrize("what", BEYOND)
def test_places_outside_the_session_are_refused_and_change_nothing(open_session, what):
    role, state = open_session
    with pytest.raises(PeerError, match="places"):
        role.step(state, ask(10**6, BEYOND[what]))


def test_a_query_that_comes_again_is_refused(open_session):
    role, state = open_session
    number = state.rounds.taken
    with pytest.raises(PeerError, match="numbers rise"):
        role.step(state, ask(number, places(1)))
    state, effects = role.step(state, ask(number + 1, places(1)))
    assert effects == (Charge(query=number + 1, places=places(1)),)
    with pytest.raises(PeerError, match="one at a time"):
        role.step(state, ask(number + 2, places(2)))


@pytest.mark.parametrize("number", [10**12, 2**63 - 1])
def test_a_number_that_no_release_can_have_is_refused_before_anybody_is_charged(
    open_session, number
):
    """Bug: the answer could not be made, its process died, and the query came again."""
    role, state = open_session
    with pytest.raises(PeerError, match="number"):
        role.step(state, ask(number, places(1)))
    state, _ = role.step(state, ask(QUERY_NUMBER_MAX, places(1)))
    charged = Charged(query=QUERY_NUMBER_MAX, refused=b"", reason="", head=HEAD)
    _, (sent,) = role.step(state, charged)
    assert isinstance(sent.message, ScoreReply)


def test_nothing_leaves_before_the_account_has_answered(open_session):
    role, state = open_session
    number = state.rounds.taken + 1
    state, effects = role.step(state, ask(number, places(1, 2)))
    assert not any(isinstance(effect, Send) for effect in effects)
    with pytest.raises(PeerError, match="instead of"):
        role.step(state, Charged(query=number - 1, refused=b"", reason="", head=HEAD))
    said = Charged(query=number, refused=b"\x80", reason="so", head=HEAD)
    _, (sent,) = role.step(state, said)
    assert isinstance(sent.message, ScoreReply)
    assert count(sent.message) == 1  # of two, the account refuses the first


def test_who_is_asked_twice_has_the_same_noise_twice(models):
    budget = Budget(epsilon=5.0, delta=0.01)
    ran = session(models, scores="noised", budget=budget)
    asked = [places(1, 5, 9), places(0, 5, 6)]
    commands = [*(OperatorCommand(command=AskScores(places=p)) for p in asked)]
    commands.append(OperatorCommand(command=EndScoring()))
    run_commands(ran, commands)
    bank = ran.federation.assets("bank")
    replies = [
        e.message.release
        for e in evidence_of(ran.federation).said
        if e.header.kind == "score_reply" and e.header.sender == "shop"
    ]
    opened = [
        unsealed(r, bank.sealing_key("shop", r.release_id)).tensor.array()
        for r in sorted(replies, key=lambda r: r.release_id)
    ]
    assert opened[0][1] == opened[1][1]  # place 5: averaging two answers tells nothing more
    assert len({*opened[0], *opened[1]}) == 5


def run_commands(ran, commands):
    """Give the active party these commands, one after the other is done."""
    left = list(commands)

    def operator(node):
        state = node.state
        rounds = state.rounds if isinstance(state, Training) and not state.is_done else None
        is_ready = isinstance(rounds, ScoringActive) and not rounds.is_open
        return left.pop(0) if is_ready and left else None

    ran.federation.operators["bank"] = operator
    return ran.federation.simulate()


def test_beyond_queries_max_a_person_is_refused_in_every_later_session(models):
    twice = {p: policy(scoring="disclosed", queries_max=2) for p in PASSIVES}
    first = session(models, policies=twice, partner_away="without")
    command = OperatorCommand(command=AskScores(places=places(0, 1, 2)))
    more = OperatorCommand(command=AskScores(places=places(2, 3)))
    run_commands(first, [command, more, more, OperatorCommand(command=EndScoring())])
    replies = said_by_shop(first)
    assert [count(r) for r in replies] == [3, 2, 1]  # place 2 was asked for twice by then
    assert replies[2].refused == b"\x80"
    assert "policy.queries_max = 2: 1 of 2 people" in replies[2].reason
    second = following(first, models, run="scores-2", policies=twice, partner_away="without")
    second.run()
    assert set(second.federation.outcomes.values()) == {"completed"}
    refused = sum(asked_in(r) - count(r) for r in said_by_shop(second))
    assert refused == 2  # places 2 and 3, found again by the ids of who stands there
    labels = [a.without for a in second.answers if a.without]
    assert labels
    assert set(labels[0]) <= set(PASSIVES)


def said_by_shop(ran):
    said = evidence_of(ran.federation).said
    found = [e.message for e in said if isinstance(e.message, ScoreReply)]
    mine = [m for m in found if "/shop/" in m.release.release_id]
    return sorted(mine, key=lambda m: m.number)


def count(reply):
    return reply.release.tensor.shape[0] - SEAL_WORDS


def asked_in(reply):
    bits = np.unpackbits(np.frombuffer(reply.refused, dtype=np.uint8)).sum()
    return count(reply) + int(bits)


def test_with_another_model_beyond_models_max_everybody_is_refused(models, second_models):
    first = session(models)
    first.run()
    second = following(first, second_models, run="scores-2", partner_away="without")
    nodes = second.run().nodes
    assert set(second.federation.outcomes.values()) == {"completed"}
    # What the account refuses it does not limit, so the bytes of such queries are limited.
    assert nodes["shop"].mailbox.allowance["bank"] > 5 * len(said_by_shop(second))
    for reply in said_by_shop(second):
        assert count(reply) == 0
        assert "policy.models_max = 1" in reply.reason
    two = {p: policy(scoring="disclosed", models_max=2) for p in PASSIVES}
    third = following(first, second_models, run="scores-3", policies=two)
    third.run()
    assert all(not a.without for a in third.answers)


def test_other_steps_count_as_another_model(models):
    """Bug: sessions in ever other steps closed in on a score that the policy keeps coarse."""
    coarse = {p: policy(scoring="disclosed", coarsen=0.25) for p in PASSIVES}
    first = session(models, policies=coarse, coarsen=0.25)
    first.run()
    assert all(count(reply) for reply in said_by_shop(first))
    changes = {"policies": coarse, "partner_away": "without"}
    second = following(first, models, run="scores-2", coarsen=0.26, **changes)
    second.run()
    for reply in said_by_shop(second):
        assert count(reply) == 0
        assert "policy.models_max = 1" in reply.reason
    third = following(first, models, run="scores-3", coarsen=0.25, **changes)
    third.run()
    assert all(count(reply) for reply in said_by_shop(third))


NOISED = {"scores": "noised", "budget": Budget(epsilon=1.0, delta=0.01)}


@pytest.mark.parametrize("before", ["session", "training"])
def test_noised_scores_and_trainings_share_the_lifetime(models, before):
    """Bug: sessions without end added to what trainings tell of a row, and no cap held them."""
    once = policy(scoring="noised", lifetime=Budget(epsilon=1.5, delta=0.01))  # < 2 mu(1)^2
    changes = {"policies": dict.fromkeys(PASSIVES, once), "partner_away": "without", **NOISED}
    first = session(models, **changes)
    if before == "session":
        first.run()
        assert all(count(reply) for reply in said_by_shop(first))
    second = following(first, models, run="scores-2", **changes)
    training = Federation(
        manifest(run="later", method=PrivateModel()), tables(80), policies=changes["policies"]
    )
    training.ledgers, training.scored = first.federation.ledgers, first.federation.scored
    training.simulate()
    outcome = {"session": "refused", "training": "completed"}[before]
    assert set(training.outcomes.values()) == {outcome}
    second.run()
    for reply in said_by_shop(second):
        assert count(reply) == 0
        assert "policy.lifetime" in reply.reason


def test_a_session_with_another_model_than_the_manifest_says_is_refused(models, second_models):
    ran = session(models)
    ran.federation.models = {**models, "shop": second_models["shop"]}
    simulation = ran.run()
    assert set(ran.federation.outcomes.values()) == {"refused"}
    assert "it is of run second-run" in simulation.nodes["coordinator"].state.reason


def test_weights_that_are_not_private_are_not_scored_with(models):
    ran = session(models)
    bare = replace(models["shop"], weights_private=False)
    ran.federation.models = {**models, "shop": bare}
    simulation = ran.run()
    assert "are not private" in simulation.nodes["coordinator"].state.reason


def test_an_account_that_was_put_back_is_noticed(models):
    first = session(models)
    first.run()
    old = sqlite3.connect(":memory:", isolation_level=None)
    second = following(first, models, run="scores-2")
    copied(first.federation.scored["shop"], old)
    second.run()
    third = following(second, models, run="scores-3")
    third.federation.scored = {**second.federation.scored, "shop": old}
    with pytest.raises(IntegrityError, match="older copy"):
        third.run()
    third.federation.scored["shop"] = sqlite3.connect(":memory:", isolation_level=None)
    with pytest.raises(IntegrityError, match="older copy"):
        third.run()


def test_ledger_and_account_put_back_together_are_noticed(models):
    """Bug: copies of both, made while a session was open, were older than no co-signed head."""
    first, old = session(models), {}

    def copy_once(node):
        rounds = getattr(node.state, "rounds", None)
        if isinstance(rounds, ScoringPassive) and rounds.taken == 1 and not old:
            for name in ("ledgers", "scored"):
                old[name] = sqlite3.connect(":memory:", isolation_level=None)
                copied(getattr(first.federation, name)["shop"], old[name])

    first.federation.operators["shop"] = copy_once
    first.run()
    second = following(first, models, run="scores-2")
    second.federation.ledgers = {**first.federation.ledgers, "shop": old["ledgers"]}
    second.federation.scored = {**first.federation.scored, "shop": old["scored"]}
    with pytest.raises(IntegrityError, match="co-signed"):
        second.run()


def copied(source, target):
    for statement in source.iterdump():
        if statement not in ("BEGIN TRANSACTION;", "COMMIT;"):
            target.execute(statement)


@pytest.mark.parametrize("partner_away", ["without", "refuse"])
def test_a_partner_that_is_away_is_named_or_the_score_is_refused(models, partner_away):
    ran = session(models, answer_within_s=0.2, partner_away=partner_away)
    silent = ran.federation.node

    def node(party):
        made = silent(party)
        if party == "telco":
            made.role = Mute(made.role)
        return made

    ran.federation.node = node
    ran.run()
    assert len(ran.answers) == 5
    for found in ran.answers:
        assert set(found.without) == {"telco"}
        assert np.isfinite(found.theta).all()
        refused = np.unpackbits(np.frombuffer(found.refused, dtype=np.uint8)).sum()
        assert refused == (len(found.places) if partner_away == "refuse" else 0)
    assert "in time" in ran.answers[0].reasons["telco"]


class Mute:
    """Hears queries and says nothing, until the session ends."""

    def __init__(self, role):
        self._role = role

    def __getattr__(self, name):
        return getattr(self._role, name)

    def step(self, state, given):
        state, effects = self._role.step(state, given)
        is_reply = [isinstance(getattr(e, "message", None), ScoreReply) for e in effects]
        return state, tuple(e for e, reply in zip(effects, is_reply, strict=True) if not reply)
