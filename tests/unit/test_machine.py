"""Legal moves are a table: whatever is not in it is refused with the state untouched."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, fields, replace

import numpy as np
import pytest

from broker.coordinator import MOVES, Coordinator
from hdpvfl_mq.errors import PeerError
from hdpvfl_mq.journal import chain
from hdpvfl_mq.machine import (
    LedgerRead,
    OperatorRequest,
    Received,
    Send,
    Started,
    TimerFired,
    dispatch,
    fold,
    move_name,
    stay,
)
from hdpvfl_mq.node.node import NO_LEDGER
from hdpvfl_mq.wire.codec import decode_body, decode_header, model_digest
from parties.active import Active
from parties.passive import Passive
from schemas.ids import COORDINATOR
from schemas.messages import ROUTES
from schemas.records import EnvelopeReceived
from tests.federation import Federation, manifest
from tests.puppet import Puppet
from tests.samples import KINDS, sample

PARTIES = {"bank": "active", "shop": "passive", COORDINATOR: "coordinator"}
TABLES = {"bank": Active.moves, "shop": Passive.moves, COORDINATOR: MOVES}
PHASES = {
    "bank": ("joining", "accepted", "aligning", "aligned", "training", "closed"),
    "shop": ("joining", "accepted", "aligning", "aligned", "training", "closed"),
    COORDINATOR: ("gathering", "offered", "aligning", "training", "closed"),
}
OTHER_INPUTS = (
    TimerFired(timer="watch"),
    TimerFired(timer="deadline"),
    TimerFired(timer="unheard-of"),
    OperatorRequest(request="withdraw"),
    OperatorRequest(request="dance"),
    Started(1, NO_LEDGER),
    LedgerRead(NO_LEDGER),
)


@pytest.fixture(scope="module")
def federation():
    federation = Federation()
    federation.simulation = federation.simulate()
    return federation


def sender_of(kind: str, receiver: str) -> str | None:
    """Somebody who may send this kind to this receiver."""
    may_send, may_receive = ROUTES[kind]
    if PARTIES[receiver] not in may_receive:
        return None
    names = [p for p, role in PARTIES.items() if role in may_send and p != receiver]
    return names[0] if names else None


def is_legal(party: str, phase: str, name: str) -> bool:
    table = TABLES[party]
    return (phase, name) in table or ("*", name) in table


ILLEGAL = [
    (party, phase, kind)
    for party in PARTIES
    for phase in PHASES[party]
    for kind in sorted(KINDS)
    if not is_legal(party, phase, kind)
]


def test_the_tables_name_only_phases_and_inputs_that_exist():
    names = {move_name(given) for given in OTHER_INPUTS} | set(KINDS)
    for party, table in TABLES.items():
        for phase, name in table:
            assert phase in ("*", *PHASES[party]), (party, phase)
            assert name in names, (party, name)
            if name in KINDS:
                assert sender_of(name, party), f"{party} never receives {name}"


def test_every_phase_of_a_finished_run_was_one_of_the_table(federation):
    for party in PARTIES:
        seen = {federation.node(party).role.initial().phase}
        node = federation.node(party)
        for given in inputs_of(federation, party):
            node.state, _ = node.role.step(node.state, given)
            seen.add(node.state.phase)
        assert seen == set(PHASES[party])


def inputs_of(federation: Federation, party: str) -> list:
    """What a journal says came in, as the role saw it."""
    node, inputs = federation.node(party), []
    for record, _ in chain.walk(federation.journals[party].records()):
        if isinstance(record.input, EnvelopeReceived):
            frames = record.input.frames
            header = decode_header(frames)
            inputs.append(Received(header.sender, decode_body(header, frames)))
        else:
            inputs.append(node._recorded_input(record.input)[0])
    return inputs


@pytest.mark.parametrize(("party", "phase", "kind"), ILLEGAL)
def test_an_illegal_message_is_refused_with_the_state_untouched(federation, party, phase, kind):
    role = federation.node(party).role
    state = replace(role.initial(), phase=phase)
    before = {f.name: getattr(state, f.name) for f in fields(state)}
    with pytest.raises(PeerError, match="is not a legal move while"):
        role.step(state, Received(sender_of(kind, party) or COORDINATOR, sample(kind)))
    assert all(getattr(state, name) is value for name, value in before.items())


@pytest.mark.parametrize(("party", "phase", "kind"), ILLEGAL)
def test_a_node_records_an_illegal_message_and_says_nothing(party, phase, kind):
    federation = Federation()
    node = federation.node(party)
    node.open()
    node.start()
    node.state = state = replace(node.state, phase=phase)
    ledger = federation.spent()
    sender = sender_of(kind, party)
    voice = Puppet(sender or "telco", federation.keys[sender or "telco"], party)
    turn = node.turn([voice.say(sample(kind))])
    assert node.state is state
    assert turn.send == ()
    assert turn.outcome is None
    assert federation.spent() == ledger
    if sender is None:  # stopped at the door already
        assert "may not send" in federation.journals[party].refusals()[-1][1]
    elif kind != "ack":
        *_, (_, stored, _) = federation.journals[party].records()
        assert b"is not a legal move while" in stored


@pytest.mark.parametrize("party", PARTIES)
@pytest.mark.parametrize("given", OTHER_INPUTS, ids=move_name)
def test_an_illegal_timer_or_order_is_refused(federation, party, given):
    role = federation.node(party).role
    for phase in PHASES[party]:
        if not is_legal(party, phase, move_name(given)):
            with pytest.raises(PeerError):
                role.step(replace(role.initial(), phase=phase), given)


@pytest.mark.parametrize("party", PARTIES)
def test_states_are_frozen(federation, party):
    state = federation.simulation.nodes[party].state
    with pytest.raises(FrozenInstanceError):
        state.phase = "training"


@pytest.mark.parametrize("party", ["bank", "shop"])
def test_a_step_leaves_the_state_before_it_as_it_was(federation, party):
    """Arrays of a state are never written to; a fold can therefore start anywhere."""
    node, history = federation.node(party), []
    for given in inputs_of(federation, party):
        history.append((node.state, node.state.w.copy(), node.state.w_sum.copy()))
        node.state, _ = node.role.step(node.state, given)
    for state, w, w_sum in history:
        np.testing.assert_array_equal(state.w, w)
        np.testing.assert_array_equal(state.w_sum, w_sum)


@pytest.mark.parametrize("party", PARTIES)
def test_folding_the_recorded_inputs_gives_the_recorded_state(federation, party):
    role = federation.node(party).role
    state = fold(role, inputs_of(federation, party))
    assert state.phase == "closed"
    if party != COORDINATOR:
        final = federation.simulation.nodes[party].state
        np.testing.assert_array_equal(state.w, final.w)


def test_fold_passes_over_what_is_refused():
    role = Coordinator(manifest(), model_digest(manifest()))
    refused = Received("bank", sample("aligned"))
    assert fold(role, [refused, refused]) == role.initial()


def test_stay_is_a_move_without_effect():
    state = object()
    assert stay(None, state, TimerFired(timer="watch")) == (state, ())


def test_dispatch_prefers_the_phase_to_the_rule_for_all():
    class State:
        phase = "training"

    def special(role, state, given):
        return state, ("special",)

    table = {("*", "pause"): stay, ("training", "pause"): special}
    given = Received("coordinator", sample("pause"))
    assert dispatch(table, None, State, given)[1] == ("special",)


# -- the coordinator's own rules ------------------------------------------------------------------


def gathered(role: Coordinator):
    state = role.initial()
    for party in role.parties:
        state, effects = role.step(state, Received(party, sample("hello")))
    return state, effects


def test_parties_that_disagree_on_the_number_of_rounds_do_not_train():
    """Bug: the coordinator took the number of rounds from whoever aligned last."""
    role = Coordinator(manifest(), model_digest(manifest()))
    state = replace(role.initial(), phase="aligning")
    aligned = sample("aligned")
    longer = type(aligned)(**{**dict(aligned), "rounds": aligned.rounds + 5})
    for party, said in zip(role.parties, (aligned, aligned, longer), strict=True):
        state, effects = role.step(state, Received(party, said))
    assert (state.phase, state.outcome) == ("closed", "mismatch")
    assert isinstance(effects[0], Send)
    assert effects[0].message.kind == "run_closed"


def test_the_offer_waits_for_everybody():
    role = Coordinator(manifest(), model_digest(manifest()))
    state = role.initial()
    for number, party in enumerate(role.parties):
        state, effects = role.step(state, Received(party, sample("hello")))
        kinds = [e.message.kind for e in effects]
        last = number == len(role.parties) - 1
        assert kinds == (["welcome", "run_offer"] if last else ["welcome"])


def test_a_party_that_read_another_manifest_ends_the_run():
    role = Coordinator(manifest(), model_digest(manifest(seed=8)))
    state, _ = gathered(role)
    state, _ = role.step(state, Received("bank", sample("run_accept")))
    assert state.outcome == "mismatch"
    assert "bank" in state.reason
