"""A node's correspondence: what is sent again, and what stops at the door."""

from __future__ import annotations

import pytest

from hdpvfl_mq.journal import chain
from hdpvfl_mq.machine import Received, Send
from hdpvfl_mq.node.mailbox import COPIES_NOTED_MAX, Mailbox, Stamp
from hdpvfl_mq.node.performing import RECEIVERS_MAX
from hdpvfl_mq.node.ports import Contact, Identity
from hdpvfl_mq.wire.codec import decode_body, decode_header
from hdpvfl_mq.wire.parts import PART_BYTES, PartList, Sizes
from hdpvfl_mq.wire.signing import frames_digest
from schemas.delivery import Ack
from schemas.envelope import NO_PARENT, PROTOCOL_VERSION
from schemas.ids import COORDINATOR
from schemas.messages import RoundReport
from schemas.records import TurnedAway
from schemas.signed import LedgerNotice
from tests.puppet import Puppet
from tests.samples import example, sample
from tests.unit.node.node_bench import (
    HEAD,
    KEYS,
    PAUSE,
    Bench,
    messages,
)

LISTED = PartList(Sizes(bytes=4 * PART_BYTES, part_bytes=PART_BYTES), (bytes(32),) * 4)
PEERS = tuple(f"p{number}" for number in range(100))


def crowd(count):
    """The mailbox of an active party with so many passive peers."""
    key = KEYS["bank"]
    me = Identity("bank", "active", "r", key, versions=(PROTOCOL_VERSION, PROTOCOL_VERSION))
    contact = Contact("passive", key.verify_key, PROTOCOL_VERSION)
    return Mailbox(me, dict.fromkeys(PEERS[:count], contact))


# -- sending again --------------------------------------------------------------------------------


def test_unacknowledged_bytes_are_sent_again_as_they_are(bench):
    sent = bench.node.turn([bench.coordinator.say(PAUSE)]).send
    assert set(sent) <= set(bench.node.mailbox.unacknowledged())
    again = bench.restart().mailbox.unacknowledged()
    assert set(sent) <= set(again)  # the very bytes, folded from the journal


def test_one_envelope_to_many_is_the_same_bytes_and_sent_again_once():
    both = Send(("bank", "coordinator"), LedgerNotice(head=HEAD, signature=bytes(64)))
    bench = Bench({"pause": (both,)})
    bench.node.start()
    (frames,) = bench.node.turn([bench.coordinator.say(PAUSE)]).send
    assert [d.party for d in decode_header(frames).to] == ["bank", "coordinator"]
    assert list(bench.node.mailbox.unacknowledged()).count(frames) == 1


def test_acknowledged_bytes_are_not_sent_again_even_after_a_restart(bench):
    share, report = bench.node.turn([bench.coordinator.say(PAUSE)]).send
    assert bench.node.mailbox.has_unacknowledged
    seen = frames_digest(share)
    bench.node.turn([bench.bank.say(sample("residual"), ack=1, seen=seen)])
    seen = frames_digest(report)
    bench.node.turn([bench.coordinator.say(sample("welcome"), ack=1, seen=seen)])
    assert not bench.node.mailbox.has_unacknowledged
    assert bench.restart().mailbox.unacknowledged() == ()


def test_a_bare_acknowledgement_is_no_step(bench):
    share, _ = bench.node.turn([bench.coordinator.say(PAUSE)]).send
    steps, seen = bench.node.steps, frames_digest(share)
    ack = bench.bank.sealed("ack", b"\x81\xa4kind\xa3ack", sequence=0, ack=1, seen=seen)
    bench.node.turn([ack])
    assert bench.node.steps == steps  # it is recorded with the next turn that commits anyway
    assert bench.refused() == []
    assert all(
        d.party != "bank" for f in bench.node.mailbox.unacknowledged() for d in decode_header(f).to
    )


def test_an_acknowledgement_of_more_than_was_sent_is_refused_and_recorded(bench):
    state = bench.node.state
    bench.node.turn([bench.bank.say(sample("residual"), ack=7)])
    assert bench.node.state is state
    assert bench.refused() == ["acknowledges 7 of 0 envelopes"]


def test_what_was_recorded_is_acknowledged_once_and_again_for_a_copy(bench):
    frames = bench.bank.say(sample("residual"))
    bench.node.turn([frames])
    assert bench.node.mailbox.owes
    ack = bench.node.acknowledgement()
    (delivery,) = decode_header(ack).to
    assert (delivery.party, delivery.sequence, delivery.ack) == ("bank", 0, 1)
    assert decode_body(decode_header(ack), ack).kind == "ack"
    assert bench.node.acknowledgement() is None
    bench.node.turn([frames])  # the acknowledgement was lost, the peer sends again
    assert bench.node.mailbox.owes


def test_an_acknowledgement_to_a_crowd_is_several_envelopes():
    """Bug: one header for all, read by all: bytes grew with the cube of the parties."""
    mailbox = crowd(100)
    for inbox in mailbox._inbox.values():
        inbox.received = 1
    mailbox.owe_all()
    stamp, receivers = Stamp(1, bytes(32), 0, bytes(32)), []
    while (ack := mailbox.acknowledgement(stamp, RECEIVERS_MAX)) is not None:
        receivers.append([delivery.party for delivery in decode_header(ack).to])
    assert max(map(len, receivers)) == RECEIVERS_MAX
    assert sorted(party for group in receivers for party in group) == sorted(PEERS[:100])


def test_a_lost_connection_is_told_also_to_peers_whose_first_envelope_it_lost():
    """Bug: of 256 that greet each other, those with a new connection waited for minutes."""
    mailbox, key = crowd(3), KEYS["bank"].verify_key
    mailbox.meet(COORDINATOR, Contact("coordinator", key, PROTOCOL_VERSION))

    def said():
        mailbox.owe_all()
        ack = mailbox.acknowledgement(Stamp(1, bytes(32), 0, bytes(32)), RECEIVERS_MAX)
        return ack and {delivery.party: delivery.ack for delivery in decode_header(ack).to}

    assert said() is None
    mailbox._inbox[COORDINATOR].received = 1
    assert said() == {COORDINATOR: 1}  # parties do not write to each other yet
    mailbox._inbox[PEERS[0]].received = 1
    assert said() == {COORDINATOR: 1, PEERS[0]: 1, PEERS[1]: 0, PEERS[2]: 0}


def test_an_envelope_that_several_peers_lack_is_sent_again_once():
    """Bug: each of 32 silent receivers caused a copy to all 32."""
    mailbox = crowd(64)
    stamp = Stamp(1, bytes(32), 0, bytes(32))
    first = mailbox.write(PEERS[:32], sample("agreed"), NO_PARENT, stamp)
    second = mailbox.write(PEERS[:1], sample("agreed"), NO_PARENT, stamp)
    behind = tuple((party, 1) for party in PEERS[:32])
    assert mailbox.unacknowledged_by_each(behind) == (first,)
    assert mailbox.unacknowledged_by_each(((PEERS[0], 9), (PEERS[1], 9))) == (first, second)


def test_a_peer_that_acknowledges_the_same_again_lacks_the_rest(bench):
    """After a lost connection; nobody knows better than the peer what did not arrive."""
    share, _ = bench.node.turn([bench.coordinator.say(PAUSE)]).send
    mailbox = bench.node.mailbox
    assert mailbox.take_lacking() == ()
    bench.node.turn([bench.bank.say(Ack(), ack=0, sequence=0)])
    assert mailbox.take_lacking() == ("bank",)
    bench.node.turn([bench.bank.say(Ack(), ack=1, sequence=0, seen=frames_digest(share))])
    assert mailbox.take_lacking() == ()  # news
    bench.node.turn([bench.bank.say(Ack(), ack=1, sequence=0, seen=frames_digest(share))])
    assert mailbox.take_lacking() == ()  # the same again, and it has everything


def test_an_answer_carries_the_acknowledgement(bench):
    turn = bench.node.turn([bench.coordinator.say(PAUSE)])
    assert not bench.node.mailbox.owes
    assert decode_header(turn.send[-1]).to[0].ack == 1


def test_an_answer_to_an_envelope_does_not_stand_for_the_next_one(bench):
    """Bug: of two that came in one turn the second was never acknowledged, and a run ended late."""
    turn = bench.node.turn([bench.coordinator.say(PAUSE), bench.coordinator.say(sample("welcome"))])
    assert decode_header(turn.send[-1]).to[0].ack == 1
    assert decode_header(bench.node.acknowledgement()).to[0].ack == 2


def test_nothing_is_acknowledged_before_it_is_recorded(bench):
    early = bench.bank.say(sample("residual"))
    later = bench.bank.say(sample("residual"))
    bench.node.turn([later])
    assert bench.node.acknowledgement() is None
    bench.node.turn([early])
    assert decode_header(bench.node.acknowledgement()).to[0].ack == 2


# -- the door -------------------------------------------------------------------------------------


def spoilt(frames, place):
    changed = bytearray(frames[place])
    changed[-1] ^= 1
    return (*frames[:place], bytes(changed), *frames[place + 1 :])


RESIDUAL = sample("residual")
DOOR = {
    "bad signature": (lambda b: spoilt(b.bank.say(RESIDUAL), 1), "signature does not verify"),
    "another body": (lambda b: spoilt(b.bank.say(RESIDUAL), 2), "signature does not verify"),
    "another array": (lambda b: spoilt(b.bank.say(RESIDUAL), 3), "signature does not verify"),
    "another's signature": (
        lambda b: Puppet("bank", KEYS["coordinator"], "shop").say(RESIDUAL),
        "signature does not verify",
    ),
    "unknown sender": (
        lambda b: Puppet("stranger", KEYS["bank"], "shop").say(RESIDUAL),
        "unknown run or sender",
    ),
    "another run": (
        lambda b: Puppet("bank", KEYS["bank"], "shop", run="other").say(RESIDUAL),
        "unknown run or sender",
    ),
    "another receiver": (
        lambda b: Puppet("bank", KEYS["bank"], "telco").say(RESIDUAL),
        "not addressed to this party",
    ),
    "wrong sender for its kind": (
        lambda b: b.bank.say(PAUSE),
        "a active party may not send pause here",
    ),
    "wrong receiver for its kind": (
        lambda b: b.bank.say(example(RoundReport)),
        "a active party may not send round_report here",
    ),
    "unknown kind": (
        lambda b: b.bank.sealed("gossip", b"\x80", sequence=1),
        "may not send gossip here",
    ),
    "no number": (
        lambda b: b.bank.say(RESIDUAL, sequence=0),
        "a message residual of bank lacks a sequence number",
    ),
    "far ahead": (lambda b: b.bank.say(RESIDUAL, sequence=10_000), "too far ahead"),
    "two frames": (lambda b: b.bank.say(RESIDUAL)[:2], "2 frames"),
    "six frames": (lambda b: (*b.bank.say(RESIDUAL), b"", b""), "6 frames"),
    "no list of parts": (lambda b: (*b.bank.say(RESIDUAL), b""), "not plain msgpack"),
    "long body": (
        lambda b: b.bank.sealed("residual", bytes(65_537), sequence=1),
        "above its limit",
    ),
}


@pytest.mark.parametrize("name", DOOR)
def test_a_hostile_envelope_stops_at_the_door_and_is_recorded(bench, name):
    make, words = DOOR[name]
    frames, state, steps = make(bench), bench.node.state, bench.node.steps
    turn = bench.node.turn([frames])
    assert bench.node.state is state
    assert (bench.node.steps, turn.send, turn.arm) == (steps + 1, (), ())
    assert not {"book", "reserve"} & set(bench.log.events)
    (reason,) = bench.refused()
    assert words in reason


def test_another_envelope_than_was_sent_is_not_acknowledged(bench):
    """Bug: it was recorded, and this journal then contradicted the liar's signed word."""
    share, _ = bench.node.turn([bench.coordinator.say(PAUSE)]).send
    steps = bench.node.steps
    for number, lie in enumerate((bytes(32), b"x" * 32)):
        bench.node.turn([bench.bank.sealed("residual", b"\x80", sequence=1, ack=1, seen=lie)])
        assert bench.node.steps == steps + 1 + number
    assert set(bench.refused()) == {
        "bank acknowledges an envelope 1 that is not the one it was sent"
    }
    assert bench.node.mailbox.has_unacknowledged
    bench.node.turn([bench.bank.say(sample("residual"), ack=1, seen=frames_digest(share))])
    older = bench.bank.say(sample("residual"), ack=0)
    bench.node.turn([older])
    differs = "bank acknowledges an envelope 0 that is not the one it was sent"
    assert bench.refused()[-1] == differs
    assert bench.restart().mailbox._outbox["bank"].confirmed == 1


def test_a_replayed_envelope_is_recorded_and_changes_nothing(bench):
    frames = bench.coordinator.say(PAUSE)
    bench.node.turn([frames])
    state, steps = bench.node.state, bench.node.steps
    bench.log.events.clear()
    assert bench.node.turn([frames, frames]).send == ()
    assert bench.node.state is state
    assert bench.node.steps == steps + 2
    assert bench.log.events == ["commit"]
    assert bench.refused() == ["a copy of envelope 1 of coordinator"] * 2


def test_another_envelope_under_a_used_number_is_recorded_and_changes_nothing(bench):
    bench.node.turn([bench.coordinator.say(PAUSE)])
    state = bench.node.state
    bench.node.turn([bench.coordinator.sealed("resume", b"\x80", sequence=1)])
    assert bench.node.state is state
    assert bench.refused() == ["a copy of envelope 1 of coordinator"]


@pytest.mark.parametrize("is_restarted", [False, True])
@pytest.mark.parametrize(("peer", "kind"), [("coordinator", "run_closed"), ("bank", "withdraw")])
def test_a_peer_that_leaves_under_a_used_number_is_heard(bench, peer, kind, is_restarted):
    """Bug: that of a party that had lost its journal was a copy; its peers waited for it."""
    liar = {"coordinator": bench.coordinator, "bank": bench.bank}[peer]
    first = liar.say(PAUSE if peer == "coordinator" else sample("ledger_head"))
    bench.node.turn([first])
    node = bench.restart() if is_restarted else bench.node
    liar.sequence = 0
    node.turn([liar.say(sample(kind))])
    text = "ends the run under number 1, which it has used"
    assert [(note.party, text in note.reason) for note in notes(bench)] == [(peer, True)]
    node.turn([first])  # a copy stays one
    assert bench.refused()[1:] == [f"a copy of envelope 1 of {peer}"]


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_copy_of_the_last_words_is_a_copy(bench, is_restarted):
    left = bench.bank.say(sample("withdraw"))
    bench.node.turn([left])
    node = bench.restart() if is_restarted else bench.node
    node.turn([left])
    assert bench.refused() == ["a copy of envelope 1 of bank"]


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_process_that_has_ended_speaks_no_more(bench, is_restarted):
    """Bug: the receiver recorded it, and an audit found its journal wrong."""
    bench.node.turn([bench.coordinator.say(PAUSE, epoch=2)])
    node = bench.restart() if is_restarted else bench.node
    node.turn([bench.coordinator.say(PAUSE, epoch=1)])
    fallen = "coordinator sent this from an earlier process (its epoch fell)"
    assert [note.reason for note in notes(bench)] == [fallen]


@pytest.mark.parametrize(("numbers", "epochs"), [((2, 3), (2, 1)), ((3, 2), (1, 2))])
def test_a_process_that_has_ended_speaks_no_more_out_of_order(bench, numbers, epochs):
    for number, epoch in zip(numbers, epochs, strict=True):
        bench.node.turn([bench.coordinator.say(PAUSE, sequence=number, epoch=epoch)])
    fallen = "coordinator sent this from an earlier process (its epoch fell)"
    assert [note.reason for note in notes(bench)] == [fallen]


def notes(bench):
    """The refusals that name a peer."""
    records = (chain.decode(stored, index) for index, stored, _ in bench.journal.records())
    noted = (each.input for each in records if isinstance(each.input, TurnedAway))
    return [each for each in noted if each.party is not None]


def test_copies_do_not_fill_the_journal(bench):
    frames = bench.coordinator.say(PAUSE)
    bench.node.turn([frames])
    bench.node.turn([frames] * (COPIES_NOTED_MAX + 50))
    assert len(bench.refused()) == COPIES_NOTED_MAX


BODIES = {
    "not msgpack": b"\xc1",
    "not canonical": b"\xde\x00\x01\xa4kind\xa5pause",
    "duplicate keys": b"\x82\xa4kind\xa5pause\xa4kind\xa5pause",
    "extension type": b"\xd4\x05\x00",
    "deep nesting": b"\x91" * 2000 + b"\x00",
    "huge integer": b"\x82\xa4kind\xa5pause\xabwaiting_for\xcf" + b"\xff" * 8,
    "another kind": b"\x81\xa4kind\xa3ack",
    "a missing field": b"\x81\xa4kind\xa5pause",
}


@pytest.mark.parametrize("name", BODIES)
def test_a_signed_body_that_breaks_the_schema_is_a_recorded_refusal(bench, name):
    """It took the sender's number, so it takes a step of the journal, but no state, no ledger."""
    bench.coordinator.sequence += 1
    state, steps = bench.node.state, bench.node.steps
    turn = bench.node.turn([bench.coordinator.sealed("pause", BODIES[name])])
    assert bench.node.state is state
    assert turn.send == ()
    assert bench.log.events == ["commit"]
    assert bench.node.steps == steps + 1
    assert b"refused" in bench.stored()[-1][1]
    assert messages(bench.node.turn([bench.coordinator.say(PAUSE)])) == ["score_share", "withdraw"]
    assert bench.restart().steps == steps + 2


# -- limits of one peer ---------------------------------------------------------------------------


def test_a_peer_whose_envelopes_were_refused_for_too_many_bytes_is_not_heard(bench, monkeypatch):
    monkeypatch.setattr("hdpvfl_mq.node.allowance.IDLE_BYTES_MAX", 1000)
    bench.script["residual"] = "refuse"
    for _ in range(5):
        bench.node.turn([bench.bank.say(RESIDUAL)])
    state = bench.node.state
    bench.node.turn([bench.bank.say(RESIDUAL)])
    assert bench.node.state is state
    assert "bytes that were refused or had no effect" in bench.refused()[-1]


def test_refused_bytes_of_all_peers_are_bounded_and_each_has_room_of_its_own(bench, monkeypatch):
    """Bug: 512 members that collude could write 64 MiB each into an honest journal."""
    for name, limit in {"MAX": 10**6, "ALL": 3000, "EACH": 200}.items():
        monkeypatch.setattr(f"hdpvfl_mq.node.allowance.IDLE_BYTES_{name}", limit)
    bench.script.update({"residual": "refuse", "pause": "refuse"})
    for _ in range(20):
        bench.node.turn([bench.bank.say(RESIDUAL)])
    assert "bytes that were refused or had no effect" in bench.refused()[-1]
    bench.node.turn([bench.coordinator.say(PAUSE)])
    assert bench.node.mailbox.allowance["coordinator"] > 0  # it was heard
    assert bench.node.mailbox.allowance["bank"] < 4000


def test_messages_legal_at_any_time_do_not_fill_the_disk(bench, monkeypatch):
    """Bug: a member could make its peers record ledger heads and hellos without end."""
    monkeypatch.setattr("hdpvfl_mq.node.allowance.IDLE_BYTES_MAX", 5000)
    for _ in range(100):
        bench.node.turn([bench.bank.say(LedgerNotice(head=HEAD, signature=bytes(64)))])
    assert "refused or had no effect" in bench.refused()[-1]
    bench.bank.sequence = taken = bench.node.mailbox._inbox["bank"].received
    assert taken < 30
    bench.node.mailbox.allowance.forgive()  # as every day
    bench.node.turn([bench.bank.say(LedgerNotice(head=HEAD, signature=bytes(64)))])
    assert bench.node.mailbox._inbox["bank"].received == taken + 1


def test_an_array_counts_only_if_the_role_does_nothing_with_it(bench, monkeypatch):
    """A run of many rounds is no flood; arrays for a role that ignores them are one."""
    monkeypatch.setattr("hdpvfl_mq.node.allowance.IDLE_BYTES_MAX", 2000)
    for _ in range(20):
        bench.node.turn([bench.bank.say(RESIDUAL)])
    assert bench.refused() == []
    monkeypatch.setattr(type(bench.node.role), "step", lambda self, state, given: (state, ()))
    for _ in range(20):
        bench.node.turn([bench.bank.say(RESIDUAL)])
    assert "refused or had no effect" in bench.refused()[-1]


def test_parts_of_what_a_role_ignores_count(bench, monkeypatch):
    """Bug: the list of its parts counted, and gigabytes of parts were stored."""
    bench.node.mailbox.note_taken(
        Received("bank", RESIDUAL), (*[b""] * 3, *LISTED.frames), is_moved=False
    )
    assert bench.node.mailbox.allowance["bank"] >= LISTED.sizes.bytes


def test_a_peer_that_acknowledges_nothing_is_not_heard_for_ever(bench, monkeypatch):
    monkeypatch.setattr("hdpvfl_mq.node.mailbox.UNACKNOWLEDGED_BYTES_MAX", 100)
    bench.node.turn([bench.coordinator.say(PAUSE)])  # sends a share to bank
    state = bench.node.state
    bench.node.turn([bench.bank.say(RESIDUAL)])
    assert bench.node.state is state
    assert "bank has not acknowledged" in bench.refused()[-1]


def test_an_array_is_refused_where_its_kind_has_none(bench):
    frames = bench.coordinator.sealed("pause", b"\x80", (b"x",), sequence=1)
    bench.node.turn([frames])
    assert bench.refused() == ["array frame is above its limit for pause"]


def test_a_peer_that_is_away_is_not_sent_more_at_once_than_it_would_take(bench):
    mailbox = bench.node.mailbox
    for _ in range(3):
        bench.node.turn([bench.coordinator.say(PAUSE)])
    everything = mailbox.unacknowledged()
    assert 0 < len(mailbox.unacknowledged(1)) <= 2 < len(everything)  # one for each of two peers
