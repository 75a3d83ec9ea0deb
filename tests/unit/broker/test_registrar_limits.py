"""What one member can make the registrar keep or forward is bounded."""

from __future__ import annotations

import pytest

from broker.agreed_runs import IN_VAIN_MAX, OPEN_RUNS_MAX
from broker.process.hosting import HostedFederation
from broker.process.switchboard import Switchboard
from broker.registrar import PAIRS_MAX, ROSTERS_MAX, Registrar
from hdpvfl_mq.errors import PeerError
from hdpvfl_mq.machine import OperatorCommand, Received
from hdpvfl_mq.runtime.keys import make_keys
from parties.membership import ATTEMPTS_MAX
from schemas.commands import CannotOpen, CloseRun, EndRun, RemoveMember, SeatMember
from schemas.envelope import Delivery, Header
from schemas.federation import Pair, PinnedMember, RunAnswer, RunProposal, RunStop, SignedRoster
from tests.federation import manifest
from tests.samples import example
from tests.unit.parties.test_roster import Member, roster

ROLE = Registrar()


def take(state, sender: str, message):
    return ROLE.step(state, Received(sender, message))[0]


def command(state, given):
    return ROLE.step(state, OperatorCommand(command=given))[0]


@pytest.fixture
def standing():
    state = ROLE.initial()
    for seed, (name, role) in enumerate(
        (("bank", "active"), ("shop", "passive"), ("telco", "passive"))
    ):
        key = bytes([seed]) * 32
        state = command(state, SeatMember(party=name, role=role, verify_key=key, curve_key=key))
    return state


def test_proposals_that_come_to_nothing_are_bounded(standing):
    """Bug: each stayed in memory and status for ever; a proposer could stop its own and go on."""
    for n in range(IN_VAIN_MAX):
        standing = take(standing, "bank", RunProposal(manifest=manifest(run=f"run-{n}")))
        standing = take(standing, "bank", RunStop(run=f"run-{n}", reason="operator"))
    with pytest.raises(PeerError, match="came to nothing"):
        take(standing, "bank", RunProposal(manifest=manifest(run="one-more")))


def test_a_proposal_in_another_partys_name_leaves_no_trace(standing):
    with pytest.raises(PeerError, match="only the active party"):
        take(standing, "shop", RunProposal(manifest=manifest(run="squatted")))
    assert "squatted" not in standing.runs


def test_a_party_that_acknowledges_no_end_keeps_nobody_from_proposing(standing):
    for n in range(OPEN_RUNS_MAX):
        standing = take(standing, "bank", RunProposal(manifest=manifest(run=f"run-{n}")))
        for party in ("shop", "telco"):
            yes = RunAnswer(run=f"run-{n}", accepted=True, reason="")
            standing = take(standing, party, yes)
    one = RunProposal(manifest=manifest(run="one-more"))
    assert take(standing, "bank", one).runs["one-more"].phase == "refused"
    standing = command(standing, CloseRun(run="run-0", outcome="completed", reason=""))
    assert take(standing, "bank", one).runs["one-more"].phase == "proposed"


def test_a_proposal_whose_name_is_taken_is_refused_before_its_parties_join(standing):
    """Bug: they joined first, and a party of both federations spoke to the other run."""
    standing = take(standing, "bank", RunProposal(manifest=manifest(run="one")))
    refusal = OperatorCommand(command=CannotOpen(run="one", reason="taken"))
    standing, effects = ROLE.step(standing, refusal)
    assert standing.runs["one"].phase == "refused"
    assert [(each.to, each.message.phase) for each in effects] == [
        (("bank", "shop", "telco"), "refused")
    ]


@pytest.mark.parametrize("unheard", [(), ("shop",)])
def test_a_party_whose_word_does_not_count_is_told_that_a_run_is_over(standing, unheard):
    """Bug: the coordinator does not wait for it; when it came back, it waited for the deadline."""
    standing = take(standing, "bank", RunProposal(manifest=manifest(run="one")))
    for party in ("shop", "telco"):
        standing = take(standing, party, RunAnswer(run="one", accepted=True, reason=""))
    end = EndRun(run="one", outcome="mismatch", reason="shop lies", unheard=unheard)
    standing, effects = ROLE.step(standing, OperatorCommand(command=end))
    assert standing.runs["one"].phase == "over"
    told = [(each.to, each.message.phase, each.message.reason) for each in effects]
    assert told == ([(("shop",), "refused", "over: shop lies")] if unheard else [])
    assert ("unheard" in end.model_dump()) == bool(unheard)  # older journals have the same bytes


def test_messages_of_a_pairing_are_bounded_for_each_pair_of_members(standing):
    """Bug: what the receiver refuses counts against the registrar, which it then hears no more."""
    some = Pair(peer="telco", stage=1, value=bytes(32), verify_key=bytes(32), curve_key=bytes(32))
    for _ in range(PAIRS_MAX):
        standing = take(standing, "shop", some)
    with pytest.raises(PeerError, match="is reached"):
        take(standing, "shop", some)
    take(standing, "shop", Pair(**{**dict(some), "peer": "bank"}))
    again = command(standing, RemoveMember(party="telco"))
    key = bytes(32)
    again = command(again, SeatMember(party="telco", role="passive", verify_key=key, curve_key=key))
    take(again, "shop", some)


def test_signed_rosters_are_bounded_in_number_and_size(standing):
    entry = PinnedMember(party="x", role="passive", verify_key=bytes(32), curve_key=bytes(32))
    signed = SignedRoster(signer="shop", edition=1, members=(entry,), signature=bytes(64))
    with pytest.raises(PeerError, match="more members"):
        take(standing, "shop", SignedRoster(**{**dict(signed), "members": (entry,) * 100}))
    for _ in range(ROSTERS_MAX):
        standing = take(standing, "shop", signed)
    with pytest.raises(PeerError, match="is reached"):
        take(standing, "shop", signed)


def test_a_registrar_gets_few_attempts_at_the_words_of_two_members():
    """It can remove and add a member all the time; each attempt is a guess of 36 bits."""
    bank = Member("bank", 10)
    for _ in range(ATTEMPTS_MAX + 50):
        bank.hear(roster("bank", "shop"))
        bank.hear(roster("bank"))
    assert sum(isinstance(message, Pair) for message in bank.sent) == ATTEMPTS_MAX
    bank.hear(roster("bank", "shop"))
    answer = Pair(peer="shop", stage=2, value=bytes(32), verify_key=bytes(32), curve_key=bytes(32))
    with pytest.raises(PeerError, match="not its turn"):
        bank.hear(answer)
    bank.command(RemoveMember(party="shop"))  # the operator asks for another attempt
    bank.hear(answer)
    assert bank.state.pairings["shop"].words


async def test_a_member_that_floods_its_federation_is_slowed_and_the_others_are_not(
    tmp_path, monkeypatch
):
    monkeypatch.setattr("broker.process.switchboard.WORDS_BURST", 3.0)
    monkeypatch.setattr("broker.process.switchboard.WORDS_EVERY_S", 3600.0)
    keys = make_keys(tmp_path / "keys")
    board = Switchboard("tcp://127.0.0.1:1", keys)
    hosted = HostedFederation("spring", keys, state=tmp_path, forward=board.forward, speaks=2)
    board.add("spring", hosted)
    word = example(Header)
    assert [board._may_speak(hosted, "shop", word) for _ in range(6)] == [True] * 3 + [False] * 3
    assert board._may_speak(hosted, "telco", word)
    assert hosted.node.refused == 1  # recorded once, not for each message
    hosted.node.close()


async def test_hellos_of_new_processes_are_few_and_copies_of_them_are_not_counted(
    tmp_path, monkeypatch
):
    """Bug: the registrar recorded the lists of all members for each, gigabytes in a day."""
    monkeypatch.setattr("broker.process.switchboard.HELLOS_BURST", 3.0)
    keys = make_keys(tmp_path / "keys")
    board = Switchboard("tcp://127.0.0.1:1", keys)
    hosted = HostedFederation("spring", keys, state=tmp_path, forward=board.forward, speaks=2)
    to = Delivery(party="coordinator", sequence=1, ack=0, seen=bytes(32))
    fields = {**dict(example(Header)), "kind": "member_hello", "sender": "shop"}
    new, old = (
        Header(**{**fields, "to": (to.model_copy(update={"sequence": n}),)}) for n in (1, 0)
    )
    assert [board._may_speak(hosted, "shop", old) for _ in range(9)] == [True] * 9
    assert [board._may_speak(hosted, "shop", new) for _ in range(6)] == [True] * 3 + [False] * 3
    assert board._may_speak(hosted, "shop", old)  # binds a new connection of a known process
    hosted.node.close()
