"""Scoring sessions through the roles: what leaves, what is counted, what is refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hdpvfl_mq.arrays.chunked import chunks
from hdpvfl_mq.audit import checks_scoring
from hdpvfl_mq.audit.audit import audit, exit_code
from hdpvfl_mq.audit.checks_chain import CheckFailed
from hdpvfl_mq.glm.block import ColumnBlock
from hdpvfl_mq.journal import chain
from hdpvfl_mq.machine import Charge, Charged
from hdpvfl_mq.methods.private_model.statistics import scores
from hdpvfl_mq.node.uncommitted import Uncommitted
from hdpvfl_mq.privacy.ledger_heads import ACCOUNT
from hdpvfl_mq.privacy.ledger_store import Ledger
from hdpvfl_mq.privacy.mechanism import unsealed
from hdpvfl_mq.runtime.simulation import Faults
from hdpvfl_mq.wire.codec import decode_header
from parties.common_rows import block_of, rows_of
from parties.rounds import scoring
from schemas.commands import OperatorCommand
from schemas.model import LossSpec
from schemas.privacy import Budget
from schemas.records import Arm, EnvelopeReceived, TimerFired
from schemas.tensor import Tensor
from scripts.verify_journal import verify
from tests.evidence import Cheat, evidence_of, replace_model, saying, write_run
from tests.federation import policy
from tests.simulation.scoring import PASSIVES, following, session, trained


@pytest.fixture(scope="module")
def training():
    return trained()


@pytest.fixture(scope="module")
def models(training):
    return training[1]


def by_id(ran, simulation):
    own = simulation.nodes["bank"].role.own
    order = rows_of(own, simulation.nodes["bank"].state.trained.setup).order
    ids = ran.federation.data["bank"].ids[0][order]
    return dict(zip(ids.tolist(), ran.theta.tolist(), strict=True))


def centrally(ran, models):
    """What somebody with all rows, weights and coefficients would compute."""
    parts = {}
    for party, model in models.items():
        data = ran.federation.data[party]
        is_active = party == "bank"
        block = ColumnBlock.align(
            data.X, np.arange(data.rows), intercept=is_active, scaled=not is_active
        )
        factor = models["bank"].coefficients.get(party, 1.0)
        scores = factor * block.scores(slice(0, data.rows), model.weights).expose()
        parts[party] = dict(zip(data.ids[0].tolist(), scores.tolist(), strict=True))
    common = set.intersection(*(set(part) for part in parts.values()))
    return {key: sum(part[key] for part in parts.values()) for key in common}


def test_disclosed_scores_are_those_of_all_weights_in_one_place(models):
    ran = session(models)
    simulation = ran.run()
    assert set(ran.federation.outcomes.values()) == {"completed"}
    found, expected = by_id(ran, simulation), centrally(ran, models)
    assert found.keys() == expected.keys()
    assert [found[k] for k in expected] == pytest.approx(list(expected.values()), abs=1e-4)


def test_scores_of_private_weights_cost_training_rows_nothing(training):
    before, models = training
    ran = session(models)
    ran.federation.ledgers = before.ledgers
    spent = {p: Ledger(db, p).books.spent("people") for p, db in before.ledgers.items()}
    ran.run()
    assert len(ran.answers) == 5
    for party, db in ran.federation.ledgers.items():
        books = Ledger(db, party).books
        assert books.spent("people") == spent[party]
        assert books.runs["people", "scores"].reserve.mu2_units == 0


@pytest.mark.slow
def test_a_thousand_queries_after_one_training_are_one_charge(training):
    before, models = training
    spent = {p: Ledger(db, p).books.spent("people") for p, db in before.ledgers.items()}
    ran = session(models, run="thousand", rows=1003, policies=None)
    ran.batch, ran.federation.ledgers = 1, before.ledgers
    ran.run()
    assert len(ran.answers) == 1000
    for party, db in before.ledgers.items():
        books = Ledger(db, party).books
        assert books.spent("people") == spent[party]
        charges = [e for _, e in Ledger(db, party).entries() if e.kind == "spend"]
        assert {charge.run for charge in charges} == {"test-run"}


def test_crashes_and_a_bad_network_change_no_score_and_no_count(models):
    calm = session(models)
    calm.run()
    for seed in range(4):
        disturbed = session(models)
        faults = Faults(loss=0.05, copies=0.05, delay_s=0.01, crashes=5, crash_window_s=0.4)
        disturbed.run(seed=seed, faults=faults)
        assert np.array_equal(disturbed.theta, calm.theta)
        for party in PASSIVES:
            count = "SELECT sum(queries), count(*) FROM person"
            rows = [s.federation.scored[party].execute(count).fetchone() for s in (calm, disturbed)]
            assert rows[0] == rows[1]


def test_a_query_and_its_answer_are_one_commit(models, monkeypatch):
    """Every commit waits for the disk, and a score waits for every commit."""
    together, commit = [], Uncommitted.commit

    def watched(turn, *stores):
        records = [chain.decode(stored, index) for index, stored, _ in turn.records]
        asked = sum(isinstance(e, Charge) for record in records for e in record.effects)
        told = sum(isinstance(record.input, Charged) for record in records)
        together.append((asked, told))
        commit(turn, *stores)

    monkeypatch.setattr(Uncommitted, "commit", watched)
    session(models).run()
    assert {each for each in together if any(each)} == {(1, 1)}


def test_an_answer_is_committed_with_the_next_query(models, monkeypatch):
    together, commit = [], Uncommitted.commit

    def watched(turn, *stores):
        inputs = [chain.decode(stored, index).input for index, stored, _ in turn.records]
        replies = [i for i in inputs if isinstance(i, EnvelopeReceived) and _is_reply(i.frames)]
        asks = [i for i in inputs if isinstance(i, OperatorCommand)]
        together.append((len(replies), len(asks)))
        commit(turn, *stores)

    monkeypatch.setattr(Uncommitted, "commit", watched)
    ran = session(models)
    ran.run()
    at_bank = [each for each in together if any(each)]
    # The first query, each later one or the end with both answers to the one before.
    assert at_bank == [(0, 1)] + [(2, 1)] * len(ran.answers)


def _is_reply(frames) -> bool:
    return decode_header(frames).kind == "score_reply"


def test_all_queries_share_two_timers(models):
    """One timer for each query fired later in a turn of its own, with a commit of its own."""
    ran = session(models)
    simulation = ran.run()
    assert len(ran.answers) > 3
    armed = [timer for timer in simulation.nodes["bank"].armed if timer.startswith("answer")]
    assert len(armed) == 2


def test_the_timer_of_the_query_before_does_not_end_the_next_one(models):
    """It may be due in the turn in which the next query is asked."""
    ran, stale, ended = session(models), [], []
    make = ran.federation.node

    def node(party):
        made = make(party)
        if party != "bank":
            return made
        step = made.role.step

        def watched(state, given):
            after, effects = step(state, given)
            names = [e.timer for e in effects if isinstance(e, Arm)]
            for name in (name for name in names if name.startswith("answer")):
                if stale:
                    ended.append(step(after, TimerFired(timer=stale[-1]))[0] is not after)
                stale.append(name)
            return after, effects

        made.role = Stepped(made.role, watched)
        return made

    ran.federation.node = node
    ran.run()
    assert len(stale) == len(ran.answers) > 3
    assert ended
    assert not any(ended)


class Stepped:
    """A role with another step."""

    def __init__(self, role, step):
        self._role, self.step = role, step

    def __getattr__(self, name):
        return getattr(self._role, name)


def test_no_score_leaves_before_the_ledger_knows_that_it_was_counted(models):
    ran, sent = session(models), []
    federation, router = ran.federation, ran.federation.router()

    class Watching:
        def __getattr__(self, name):
            return getattr(router, name)

        def from_connection(self, connection, user, frames):
            if _is_reply(frames):
                party = decode_header(frames).sender
                counted = federation.scored[party].execute("SELECT max(sequence) FROM entry")
                known = federation.ledgers[party].execute(
                    "SELECT sequence FROM remembered WHERE peer = ?", (ACCOUNT,)
                )
                sent.append((counted.fetchone(), known.fetchone()))
            return router.from_connection(connection, user, frames)

    federation.router = Watching
    ran.run()
    assert len(sent) >= 2 * len(ran.answers)
    assert all(counted == known for counted, known in sent)


def test_noised_scores_clip_at_b_and_are_charged_to_who_is_scored(models):
    budget = Budget(epsilon=5.0, delta=0.01)
    ran = session(models, scores="noised", budget=budget)
    simulation = ran.run()
    assert set(ran.federation.outcomes.values()) == {"completed"}
    plan = simulation.nodes["shop"].state.trained.setup.plan
    assert plan.passive_noise.sensitivity == pytest.approx(2 * 2.0)  # 2 B, not 2 * weight_norm
    rows = ran.federation.scored["shop"].execute("SELECT DISTINCT mu2_units FROM person").fetchall()
    assert rows == [(plan.mu2_units,)]
    assert plan.mu2_units > 0
    assert Ledger(ran.federation.ledgers["shop"], "shop").books.spent("people").mu2_units == 0


@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"coarsen": 0.25},
        {"scores": "noised", "budget": Budget(epsilon=5.0, delta=0.01)},
    ],
    ids=["exact", "coarse", "noised"],
)
def test_scores_of_a_session_are_made_in_chunks_with_the_same_bits(models, asked, monkeypatch):
    whole = session(models, **asked)
    whole.run()
    sizes = []

    def counting(block, rows, w):
        sizes.append(rows.stop - rows.start)
        return scores(block, rows, w)

    monkeypatch.setattr(scoring, "scores", counting)
    monkeypatch.setattr(scoring, "chunks", lambda rows: chunks(rows, 7))
    parts = session(models, **asked)
    parts.run()
    assert max(sizes) == 7
    assert np.array_equal(whole.theta, parts.theta)


def test_a_missing_score_raises_the_mean_of_a_loss_with_a_log_link():
    """Bug: the fit counts what is uncertain about theta, scores without a partner did not."""
    counts = trained(loss=LossSpec(name="poisson"), budget=Budget(epsilon=20.0, delta=0.01))[1]
    # Two models are one too many for a person, so both partners refuse everybody.
    nobody = {p: policy(scoring="disclosed", models_max=1) for p in PASSIVES}
    before = session(counts)
    before.run()
    other = {
        party: replace(model, weights=model.weights if party == "bank" else model.weights / 2)
        for party, model in counts.items()
    }
    ran = following(before, other, run="again", policies=nobody, partner_away="without")
    simulation = ran.run()
    bank, model = simulation.nodes["bank"], counts["bank"]
    setup = bank.state.trained.setup
    A = block_of(bank.role.own, setup).taken(np.arange(setup.plan.rows))
    factors = [(model.coefficients[p], model.score_regressions[p]) for p in PASSIVES]
    expected = A @ (model.weights + sum(factor * known.b for factor, known in factors))
    doubt = sum(factor**2 * known.variance for factor, known in factors)
    assert all(set(answer.without) == set(PASSIVES) for answer in ran.answers)
    assert doubt > 0.01
    np.testing.assert_allclose(ran.theta, expected + doubt / 2.0, rtol=1e-9)


def test_a_policy_that_names_no_scoring_refuses(models):
    for allowed in (policy(), policy(scoring="noised"), policy(scoring="disclosed", coarsen=0.5)):
        ran = session(models, policies={"shop": allowed})
        simulation = ran.run()
        assert set(ran.federation.outcomes.values()) == {"refused"}
        assert "policy." in simulation.nodes["coordinator"].state.reason


def test_both_verifiers_accept_a_session_and_notice_what_is_changed(models, tmp_path):
    ran = session(models)
    ran.run()
    evidence = evidence_of(ran.federation)
    assert exit_code(audit(evidence)) == 0, [v for v in audit(evidence) if not v.passed]
    assert verify(write_run(evidence, tmp_path)) == {}


def unsealing(own):
    def change(message):
        key = own.sealing_key("bank", message.release.release_id)
        return replace_model(message, release=unsealed(message.release, key))

    return change


def test_queries_in_a_training_are_found(training, models):
    """The same messages in a run whose manifest has no session."""
    ran = session(models)
    ran.run()
    evidence, other = evidence_of(ran.federation), evidence_of(training[0])
    checks_scoring.scores_in_sessions_only(other)
    checks_scoring.scores_in_sessions_only(evidence)
    vars(evidence)["manifest"] = other.manifest
    with pytest.raises(CheckFailed, match="not a session"):
        checks_scoring.scores_in_sessions_only(evidence)


LIES = {
    "other places are charged": (
        10,
        lambda own: {
            "says": lambda effect: (
                (Charge(query=effect.query, places=Tensor.of(np.arange(3))),)
                if isinstance(effect, Charge)
                else (effect,)
            )
        },
    ),
    "scores are not sealed": (9, lambda own: {"says": saying("score_reply", unsealing(own))}),
    "fewer are refused than said": (
        7,
        lambda own: {
            "says": saying("score_reply", lambda m: replace_model(m, refused=b"\x80\x00"))
        },
    ),
    "another answer's name": (
        8,
        lambda own: {
            "says": saying(
                "score_reply",
                lambda m: replace_model(
                    m, release=replace_model(m.release, release_id="scores/shop/score/99")
                ),
            )
        },
    ),
}


@pytest.mark.parametrize("lie", LIES)
def test_both_verifiers_notice_a_lying_partner(models, tmp_path, lie):
    check, cheat = LIES[lie]
    honest = session(models, answer_within_s=0.5, partner_away="without")
    federation = honest.federation
    own = federation.assets("shop")
    make = federation.node

    def node(party):
        made = make(party)
        if party == "shop":
            made.role = Cheat(made.role, **cheat(own))
        return made

    federation.node = node
    honest.run()
    evidence = evidence_of(federation)
    found = {v.number for v in audit(evidence) if not v.passed}
    assert check in found
    independent = set(verify(write_run(evidence, tmp_path)))
    assert independent & {check, 8, 11}
