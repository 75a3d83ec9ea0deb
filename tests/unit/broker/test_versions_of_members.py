"""A registrar and versions of the protocol: how it writes, and in which version a run opens."""

from __future__ import annotations

import pytest

from broker.registrar import Registrar
from hdpvfl_mq.machine import Meet, OperatorCommand, Received, Send, Started
from hdpvfl_mq.node.node import NO_LEDGER
from schemas.commands import SeatMember
from schemas.federation import MemberHello, RunAnswer, RunNews, RunProposal
from tests.federation import manifest


def registrar(speaks: int = 2) -> tuple[Registrar, object]:
    role = Registrar()
    started = Started(epoch=1, standing=NO_LEDGER, speaks=speaks)
    state, _ = role.step(role.initial(), started)
    for number, party in enumerate(("bank", "shop", "telco")):
        keys = {"verify_key": bytes([number]) * 32, "curve_key": bytes([number]) * 32}
        seat = SeatMember(party=party, role="passive" if number else "active", **keys)
        state, _ = role.step(state, OperatorCommand(command=seat))
    return role, state


def hello(role, state, party: str, speaks: int):
    return role.step(state, Received(party, MemberHello(epoch=1, speaks=speaks)))


def opened(role, state) -> RunNews:
    state, _ = role.step(state, Received("bank", RunProposal(manifest=manifest())))
    for party in ("shop", "telco"):
        answer = RunAnswer(run="test-run", accepted=True, reason="")
        state, effects = role.step(state, Received(party, answer))
    (send,) = effects
    assert state.runs["test-run"].manifest.wire == send.message.wire
    return send.message


def test_a_member_is_written_to_in_the_version_that_it_says_it_speaks():
    role, state = registrar()
    state, effects = hello(role, state, "shop", 2)
    assert [e.speaks for e in effects if isinstance(e, Meet)] == [2]
    state, effects = hello(role, state, "shop", 2)
    assert not any(isinstance(e, Meet) for e in effects)
    state, effects = hello(role, state, "shop", 1)  # it was set back
    assert [e.speaks for e in effects if isinstance(e, Meet)] == [1]


@pytest.mark.parametrize("old", [None, "bank", "shop", "telco"])
def test_a_run_opens_in_the_newest_version_that_all_its_parties_speak(old):
    role, state = registrar()
    for party in ("bank", "shop", "telco"):
        state, _ = hello(role, state, party, 1 if party == old else 2)
    assert opened(role, state).wire == (2 if old is None else 1)


@pytest.mark.parametrize("broker", [1, 2])
def test_parties_cannot_open_a_run_in_a_version_that_the_broker_does_not_speak(broker):
    """Bug: two members that overstated their version stopped the broker, also when restarted."""
    role, state = registrar(broker)
    for party in ("bank", "shop", "telco"):
        state, _ = hello(role, state, party, 2**16)
    assert opened(role, state).wire == broker


def test_a_proposal_does_not_choose_the_version():
    role, state = registrar()
    state, effects = role.step(state, Received("bank", RunProposal(manifest=manifest(wire=2))))
    (send,) = effects
    assert isinstance(send, Send)
    assert send.message.phase == "refused"
    assert "leave 'wire' out" in send.message.reason
