"""Legal moves are a table: whatever is not in it is refused with the state untouched."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, fields
from functools import cache

import numpy as np
import pytest

from broker import phases as coordinator
from broker.coordinator import MOVES, Coordinator
from hdpvfl_mq.errors import PeerError
from hdpvfl_mq.journal import chain
from hdpvfl_mq.machine import (
    Charged,
    LedgerRead,
    Move,
    Offence,
    OperatorCommand,
    OperatorRequest,
    Received,
    Send,
    Started,
    TimerFired,
    awaited,
    dispatch,
    find_move,
    fold,
    move_name,
    stay,
)
from hdpvfl_mq.node.node import NO_LEDGER
from hdpvfl_mq.wire.codec import decode_body, decode_header, encode_body, model_digest
from parties import active, passive
from parties.phases import (
    Accepted,
    Agreeing,
    Aligned,
    Aligning,
    Closed,
    Joining,
    Leaving,
    Starting,
    Training,
)
from parties.rounds.scoring import NOBODY
from schemas.commands import AskScores, EndScoring
from schemas.ids import COORDINATOR
from schemas.messages import ROUTES
from schemas.records import Acknowledged, Arm, EnvelopeReceived, TurnedAway, Withheld
from tests.federation import Federation, manifest
from tests.puppet import Puppet
from tests.samples import KINDS, sample

pytestmark = pytest.mark.seconds

PARTIES = {"bank": "active", "shop": "passive", COORDINATOR: "coordinator"}
TABLES = {"bank": active.MOVES, "shop": passive.MOVES, COORDINATOR: MOVES}
_PARTY = (Starting, Joining, Accepted, Aligning, Agreeing, Aligned, Training, Closed)
_ENDS = (Leaving,)  # not seen in a run that completes
PHASES = {"bank": _PARTY, "shop": _PARTY, COORDINATOR: tuple(coordinator.PHASES.values())}
OTHER_INPUTS = (
    TimerFired(timer="watch"),
    TimerFired(timer="deadline"),
    TimerFired(timer="closing"),
    TimerFired(timer="unheard-of"),
    OperatorRequest(request="withdraw"),
    OperatorRequest(request="close"),
    Started(epoch=1, standing=NO_LEDGER),
    LedgerRead(standing=NO_LEDGER),
    Charged(query=0, refused=b"", reason="", head=NO_LEDGER.head),
    TimerFired(timer="answer:0"),
    TimerFired(timer="offence:shop"),
    TimerFired(timer="missing:shop"),
    Offence("shop"),
    OperatorCommand(command=AskScores(places=NOBODY)),
    OperatorCommand(command=EndScoring()),
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


def is_legal(party: str, phase: type, name: str) -> bool:
    return find_move(TABLES[party], phase, name) is not None


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
            assert any(issubclass(p, phase) for p in (*PHASES[party], *_ENDS)), (party, phase)
            assert name in names, (party, name)
            if name in KINDS:
                assert sender_of(name, party), f"{party} never receives {name}"


def test_every_phase_of_a_finished_run_was_one_of_the_table(federation):
    for party in PARTIES:
        seen = {type(federation.node(party).role.initial())}
        node = federation.node(party)
        for given in inputs_of(federation, party):
            node.state, _ = node.role.step(node.state, given)
            seen.add(type(node.state))
        assert seen == set(PHASES[party])


def inputs_of(federation: Federation, party: str) -> list:
    """What a journal says came in, as the role saw it."""
    node, inputs = federation.node(party), []
    for record, _ in chain.walk(federation.journals[party].records()):
        if isinstance(record.input, EnvelopeReceived):
            frames = record.input.frames
            header = decode_header(frames)
            inputs.append(Received(header.sender, decode_body(header, frames)))
        elif not isinstance(record.input, Acknowledged | TurnedAway | Withheld):
            inputs.append(node._recorded_input(record.input)[0])
    return inputs


@pytest.mark.parametrize("party", PARTIES)
def test_illegal_messages_are_refused_with_the_state_untouched(federation, party):
    role = federation.node(party).role
    for owner, phase, kind in ILLEGAL:
        if owner != party:
            continue
        state = at_phase(federation, party, phase)
        before = {f.name: getattr(state, f.name) for f in fields(state)}
        with pytest.raises(PeerError, match=f"{kind} is not a legal move while"):
            role.step(state, Received(sender_of(kind, party) or COORDINATOR, sample(kind)))
        assert all(getattr(state, name) is value for name, value in before.items())


def at_phase(federation, party, phase):
    """The state of a recorded run when it was in a phase."""
    return states_of(federation, party)[phase]


@cache
def _states(party):
    federation = Federation()
    federation.simulate()
    node, seen = federation.node(party), {}
    seen[type(node.state)] = node.state
    for given in inputs_of(federation, party):
        node.state, _ = node.role.step(node.state, given)
        seen[type(node.state)] = node.state
    return seen


def states_of(federation, party):
    return _states(party)


@pytest.mark.parametrize("party", PARTIES)
def test_a_node_records_illegal_messages_and_says_nothing(party):
    for phase in PHASES[party]:
        kinds = [kind for owner, place, kind in ILLEGAL if (owner, place) == (party, phase)]
        check_recorded(party, phase, kinds)


def check_recorded(party, phase, kinds):
    """One node in this phase hears one message after the other."""
    federation = Federation()
    node = federation.node(party)
    node.open()
    node.start()
    node.state = state = at_phase(federation, party, phase)
    ledger, voices = federation.spent(), {}
    for kind in kinds:
        sender = sender_of(kind, party)
        name = sender or "telco"
        voice = voices.setdefault(name, Puppet(name, federation.keys[name], party))
        if kind in ("ack", "part", "part_request"):  # outside the stream: they take no number
            frames = voice.sealed(kind, *encode_body(sample(kind)), sequence=0)
        else:
            frames = voice.say(sample(kind))
        turn = node.turn([frames])
        assert (turn.send, turn.outcome) == ((), None), kind
        assert federation.spent() == ledger
        assert node.state is state
        if sender is None:  # stopped at the door already
            assert "may not send" in federation.journals[party].refusals()[-1][1]
        elif kind not in ("ack", "part", "part_request"):
            *_, (_, stored, _) = federation.journals[party].records()
            assert b"is not a legal move while" in stored, kind


@pytest.mark.parametrize("party", PARTIES)
@pytest.mark.parametrize("given", OTHER_INPUTS, ids=move_name)
def test_an_illegal_timer_or_request_is_refused(federation, party, given):
    role = federation.node(party).role
    for phase in PHASES[party]:
        if not is_legal(party, phase, move_name(given)):
            with pytest.raises(PeerError):
                role.step(at_phase(federation, party, phase), given)


@pytest.mark.parametrize("party", PARTIES)
def test_states_are_frozen(federation, party):
    state = federation.simulation.nodes[party].state
    with pytest.raises(FrozenInstanceError):
        state.reason = "another"


@pytest.mark.parametrize("party", PARTIES)
def test_folding_the_recorded_inputs_gives_the_recorded_state(federation, party):
    role = federation.node(party).role
    state = fold(role, inputs_of(federation, party))
    assert type(state).__name__ == "Closed"
    if party != COORDINATOR:
        final = federation.simulation.nodes[party].state
        np.testing.assert_array_equal(state.trained.rounds.w, final.trained.rounds.w)


def test_fold_passes_over_what_is_refused():
    role = Coordinator(manifest(), model_digest(manifest()))
    refused = Received("bank", sample("aligned"))
    assert fold(role, [refused, refused]) == role.initial()


def test_stay_is_a_move_without_effect():
    state = object()
    assert stay(None, state, TimerFired(timer="watch")) == (state, ())


class Base:
    pass


class Special(Base):
    pass


def test_dispatch_prefers_the_phase_to_the_rule_for_all():
    def special(role, state, given):
        return state, ("special",)

    table = {(Base, "pause"): Move(stay, ()), (Special, "pause"): Move(special, ())}
    given = Received("coordinator", sample("pause"))
    assert dispatch(table, None, Special(), given)[1] == ("special",)
    assert dispatch(table, None, Base(), given)[1] == ()


def test_a_move_may_only_lead_where_the_table_says():
    def astray(role, state, given):
        return Special(), ()

    given = Received("coordinator", sample("pause"))
    with pytest.raises(AssertionError, match="led from Base to Special"):
        dispatch({(Base, "pause"): Move(astray, ())}, None, Base(), given)
    assert dispatch({(Base, "pause"): Move(astray, (Special,))}, None, Base(), given)


# -- the coordinator's own rules ------------------------------------------------------------------


def gathered(role: Coordinator):
    state = role.initial()
    for party in role.parties:
        state, effects = role.step(state, Received(party, sample("hello")))
    return state, effects


def test_parties_that_disagree_on_the_number_of_rounds_do_not_train():
    """Bug: the coordinator took the number of rounds from whoever aligned last."""
    role = Coordinator(manifest(), model_digest(manifest()))
    state = coordinator.Aligning()
    aligned = sample("aligned")
    longer = type(aligned)(**{**dict(aligned), "rounds": aligned.rounds + 5})
    for party, said in zip(role.parties, (aligned, aligned, longer), strict=True):
        state, effects = role.step(state, Received(party, said))
    assert state.outcome == "mismatch"
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


@pytest.mark.parametrize(("passives", "ask_s", "answer_s"), [(2, 30.0, 5.0), (400, 100.25, 20.05)])
def test_a_crowd_is_asked_less_often_whom_it_waits_for(passives, ask_s, answer_s):
    """Bug: 512 parties were asked every 35 seconds, and named 500 that had not answered yet."""
    crowd = manifest(passive_parties=tuple(f"passive-{k}" for k in range(passives)))
    role = Coordinator(crowd, model_digest(crowd))
    state, arms = coordinator.Aligning(), []
    for _ in range(2):
        state, effects = role.step(state, TimerFired(timer="watch"))
        arms += [each.delay_ms / 1000 for each in effects if isinstance(each, Arm)]
    assert arms == [answer_s, ask_s]


@pytest.mark.parametrize(("passives", "watch_s"), [(2, 30.0), (400, 100.25)])
def test_a_crowd_is_given_longer_in_rounds_before_somebody_counts_as_away(passives, watch_s):
    """Bug: 256 parties on a busy machine were asked every 30 seconds, 40 messages to each."""
    crowd = manifest(passive_parties=tuple(f"passive-{k}" for k in range(passives)))
    role = Coordinator(crowd, model_digest(crowd))
    finished = dict.fromkeys(role.parties, 0)
    state = coordinator.Training(plan_digest=bytes(32), rounds=9, finished_rounds=finished)
    _, effects = role.step(state, TimerFired(timer="watch"))
    arms = [each.delay_ms / 1000 for each in effects if isinstance(each, Arm)]
    assert arms == [watch_s]


def test_the_coordinator_asks_whom_it_names():
    role = Coordinator(manifest(), model_digest(manifest()))
    state, _ = role.step(role.initial(), Received("shop", sample("hello")))
    assert awaited(role, state) == (COORDINATOR, "bank", "telco")
