"""The pump on a link that the test holds in its hands."""

from __future__ import annotations

import asyncio
import math

import pytest

from hdpvfl_mq.errors import NetworkError
from hdpvfl_mq.node.parts import UNSERVED_MAX, _Incoming
from hdpvfl_mq.node.ports import Turn
from hdpvfl_mq.runtime.arrivals import Arrivals
from hdpvfl_mq.runtime.metrics import Tally
from hdpvfl_mq.runtime.runner import BUSY_S, LOOK_S, Runner
from hdpvfl_mq.wire.codec import decode_header
from hdpvfl_mq.wire.parts import PartList
from tests.federation import Federation, manifest, tables


class HeldLink:
    """Connects when told; keeps what is sent."""

    def __init__(self):
        self.wake = asyncio.Event()
        self.sent = []
        self.connected = False
        self.room = 1000  # envelopes

    def has_room(self):
        return len(self.sent) < self.room

    def take(self):
        return []

    def take_connected(self):
        connected, self.connected = self.connected, False
        return connected

    async def send(self, frames):
        self.sent.append(frames)


@pytest.fixture
def ended():
    """A party's process that is started again after the end of its run."""
    federation = Federation(manifest(), tables(60))
    federation.simulate()
    node = federation.node("shop")
    node.open()
    assert node.outcome == "completed"
    for outbox in node.mailbox._outbox.values():
        outbox.acknowledge(outbox.sent)
    return node


async def test_a_party_killed_after_the_end_acknowledges_it_when_it_is_started_again(ended):
    link = HeldLink()
    ended.mailbox.owe_all()
    running = asyncio.create_task(Runner(ended, link, patience_s=60, observe=lambda _: None).run())
    await asyncio.sleep(0.05)
    assert not running.done(), "it leaves before anybody could hear it"
    link.connected = True
    link.wake.set()
    assert await asyncio.wait_for(running, 2) == "completed"
    kinds = [decode_header(frames).kind for frames in link.sent]
    assert kinds == ["hello", "ack"]  # in this order: the broker hears nobody without a hello
    heard = {d.party: d.ack for d in decode_header(link.sent[1]).to}
    assert heard == {mark.party: mark.received for mark in ended.mailbox.marks()}


async def test_the_kernel_is_asked_for_room_only_for_parts(ended):
    """A turn without parts made three system calls for an answer that nobody needed."""
    asked = []

    class Asked(HeldLink):
        def has_room(self):
            asked.append(len(self.sent))
            return super().has_room()

    link = Asked()
    runner = Runner(ended, link, patience_s=60, observe=lambda _: None)
    await runner._finish(Turn(((b"envelope",),), (), None))
    assert (link.sent, asked) == ([(b"envelope",)], [])
    link.room = 2
    await runner._finish(Turn((), (), None, parts=iter([(b"1",), (b"2",), (b"3",)])))
    assert (len(link.sent), asked) == (2, [1, 2])


async def test_a_process_whose_reader_died_stops_and_says_so():
    federation = Federation(manifest(), tables(60))
    node = federation.node("shop")

    class Local(Arrivals):
        def take_connected(self):
            return False

        async def send(self, frames):
            """To nobody."""

    async def dies():
        raise ValueError("a cell of somebody's table")

    link = Local()
    link.watch(asyncio.create_task(dies()))
    runner = Runner(node, link, patience_s=60, observe=lambda _: None)
    with pytest.raises(NetworkError, match=r"ended \(ValueError\); start this process again"):
        await asyncio.wait_for(runner.run(), 5)


async def test_a_party_started_again_after_the_end_does_not_wait_for_a_broker_that_is_gone(ended):
    ended.mailbox.owe_all()
    runner = Runner(ended, HeldLink(), patience_s=60, observe=lambda _: None, farewell_s=0.05)
    assert await asyncio.wait_for(runner.run(), 5) == "completed"


async def test_nobody_waits_for_the_acknowledgements_of_a_peer_that_signed_what_is_false(ended):
    """Bug: a broker stayed a minute for acknowledgements that it would have refused."""
    ended.mailbox._outbox["bank"].keep(ended.mailbox._outbox["bank"].number(), (b"",), 0)
    link = HeldLink()
    ended.mailbox.note_false("bank")
    running = Runner(ended, link, patience_s=60, observe=lambda _: None, farewell_s=60).run()
    link.wake.set()
    assert await asyncio.wait_for(running, 2) == "completed"


async def test_what_changed_nothing_is_forgiven_after_a_day(ended, monkeypatch):
    """A limit for ever would end the stream of an honest member of a standing federation."""
    monkeypatch.setattr("hdpvfl_mq.runtime.runner.FORGIVE_S", 0.05)
    ended.mailbox.allowance.note("bank", 1000)
    ended.mailbox.owe_all()
    link = HeldLink()
    running = asyncio.create_task(Runner(ended, link, patience_s=60, observe=lambda _: None).run())
    link.wake.set()
    await asyncio.sleep(0.02)
    assert ended.mailbox.allowance["bank"] == 1000
    await asyncio.sleep(0.05)
    link.wake.set()
    await asyncio.sleep(0.01)
    running.cancel()
    assert ended.mailbox.allowance["bank"] == 0


async def test_only_what_a_peer_lacks_that_was_away_is_sent_again(ended):
    for party in ("bank", "coordinator"):
        outbox = ended.mailbox._outbox[party]
        for _ in range(3):
            number = outbox.number()
            outbox.keep(number, (party.encode(), b"%d" % number), 1)
    link, tally = HeldLink(), Tally()
    runner = Runner(ended, link, patience_s=60, observe=lambda _: None, tally=tally)
    runner._pacing.behind = {"bank": 2}
    await runner._turn([], 0.0)
    first = ended.mailbox.position("bank").acknowledged + 1
    assert link.sent == [(b"bank", b"%d" % first), (b"bank", b"%d" % (first + 1))]
    assert tally.resends == 2


async def test_copies_wait_for_room_on_the_connection(ended):
    """Bug: a broker that read nothing made a party keep copy after copy of what it had sent.

    In a run of 50 million rows, 4.7 GB of copies waited in memory.
    """
    outbox = ended.mailbox._outbox["bank"]
    for number in (outbox.number() for _ in range(3)):
        outbox.keep(number, (b"bank", b"%d" % number), 1)
    link, tally = HeldLink(), Tally()
    runner = Runner(ended, link, patience_s=60, observe=lambda _: None, tally=tally)
    for room in (2, 2, 5):
        link.room, runner._pacing.resend_at = room, 0.0
        await runner._turn([], 0.0)
    first = ended.mailbox.position("bank").acknowledged + 1
    assert [int(number) for _, number in link.sent] == [first, first + 1, *range(first, first + 3)]
    assert tally.resends == 5


async def test_no_part_is_made_that_the_connection_has_no_room_for(ended):
    link, made = HeldLink(), []
    runner = Runner(ended, link, patience_s=60, observe=lambda _: None)
    link.room = 2

    def parts():
        for number in range(9):
            made.append(number)
            yield (b"%d" % number,)

    for _ in range(2):
        await runner._finish(Turn((), (), None, parts=parts()))
    assert link.sent == [(b"0",), (b"1",)]
    assert made == [0, 1]


async def test_a_peer_that_serves_no_parts_is_recorded_when_a_request_is_due(ended):
    waiting = _Incoming(9, PartList.of_array(b"array"), {0: None}, unserved=UNSERVED_MAX - 1)
    ended.parts._incoming["bank"] = waiting
    runner = Runner(ended, HeldLink(), patience_s=60, observe=lambda _: None)
    for is_heard, refused in ((False, 0), (True, 1)):  # one that is silent may be restarting
        before, waiting.is_heard, runner._pacing.ask_at = ended.refused, is_heard, 0.0
        await runner._turn([], 0.0)
        assert ended.refused - before == refused


async def test_a_copy_that_found_no_room_is_not_taken_for_one_that_was_sent(ended):
    """Bug: what a peer of a crowd lacked waited minutes for its next copy."""
    outbox = ended.mailbox._outbox["bank"]
    outbox.keep(outbox.number(), (b"lost", b"signed"), 1)
    link = HeldLink()
    runner = Runner(ended, link, patience_s=60, observe=lambda _: None)
    for room, sent in ((0, []), (1000, [(b"lost", b"signed")])):
        link.room = room
        runner._pacing.crowd_s, runner._pacing.behind = 100.0, {"bank": 1}
        await runner._turn([], 1.0)
        assert link.sent == sent
    runner._pacing.crowd_s, runner._pacing.behind = 100.0, {"bank": 1}
    await runner._turn([], 2.0)
    assert link.sent == [(b"lost", b"signed")]  # a moment ago, to all of the crowd


@pytest.mark.parametrize(("takes_s", "busy_s"), [(BUSY_S / 2, []), (20.0, [20.0])])
async def test_a_long_turn_delays_what_peers_are_given(ended, monkeypatch, takes_s, busy_s):
    clock, noted = [100.0], []
    monkeypatch.setattr("hdpvfl_mq.runtime.runner.monotonic", lambda: clock[0])
    runner = Runner(ended, HeldLink(), patience_s=60, observe=lambda _: None)
    monkeypatch.setattr(runner._pacing, "was_busy", noted.append)

    def turn(arrivals, events):
        clock[0] += takes_s
        return Turn((), (), None)

    monkeypatch.setattr(ended, "turn", turn)
    await runner._turn([(b"frames",)], clock[0])
    assert noted == busy_s


@pytest.mark.parametrize(
    ("patience_s", "outcome", "sleeps_s"),
    [(600.0, None, LOOK_S), (2.0, None, 0.2), (math.inf, None, LOOK_S), (600.0, "completed", 1.0)],
)
async def test_a_run_in_which_nothing_is_due_sleeps(
    ended, monkeypatch, patience_s, outcome, sleeps_s
):
    """Bug: hundreds of parties on one machine looked at nothing every second."""
    runner, slept = Runner(ended, HeldLink(), patience_s=patience_s, observe=lambda _: None), []
    ended.outcome = outcome
    loop = asyncio.get_running_loop()
    call_later = loop.call_later

    def noted(delay_s, action):
        slept.append(delay_s)
        return call_later(0.0, action)

    monkeypatch.setattr(loop, "call_later", noted)
    await runner._wait()
    assert slept == [sleeps_s]


async def test_what_came_during_a_long_turn_is_read_before_copies_are_sent(ended, monkeypatch):
    """Bug: an acknowledgement waited to be read while what it acknowledges was sent again."""
    link, acknowledgement = HeldLink(), (b"acknowledgement",)
    monkeypatch.setattr(link, "take", lambda: [acknowledgement])
    taken = []

    def turn(arrivals, events):
        taken.extend(arrivals)
        return Turn((), (), None)

    monkeypatch.setattr(ended, "turn", turn)
    runner = Runner(ended, link, patience_s=60, observe=lambda _: None)
    await runner._turn([(b"earlier",)], 1.0)
    assert taken == [(b"earlier",)]
    runner._pacing.resend_at = 0.0
    await runner._turn([], 1.0)
    assert taken == [(b"earlier",), acknowledgement]


async def test_bulk_of_a_lost_connection_is_sent_again_at_once(ended):
    outbox, bulk = ended.mailbox._outbox["bank"], (b"header", b"signature", bytes(2**18))
    outbox.keep(outbox.number(), bulk, 2**18)
    link = HeldLink()
    runner = Runner(ended, link, patience_s=60, observe=lambda _: None)
    runner._pacing.note_again(bulk, 1.0)
    runner._pacing.resend_at = 0.0
    await runner._turn([], 1.1)
    assert bulk not in link.sent
    link.connected = True
    await runner._turn([], 1.2)
    assert bulk in link.sent


@pytest.mark.parametrize("is_heard", [False, True])
async def test_a_party_started_again_after_the_end_sends_more_than_once(ended, is_heard):
    """Bug: if that one copy was lost, a service never sent it again unless it heard something."""
    outbox, last = ended.mailbox._outbox["bank"], (b"last", b"signed")
    outbox.keep(outbox.number(), last, 1)
    link = HeldLink()
    link.connected = True
    runner = Runner(ended, link, patience_s=60, observe=lambda _: None, farewell_s=math.inf)
    running = asyncio.create_task(runner.run())
    link.wake.set()
    await asyncio.sleep(0.05)
    assert link.sent.count(last) == 1
    if is_heard:
        outbox.acknowledge(outbox.sent)
    await asyncio.sleep(1.0)
    running.cancel()
    assert link.sent.count(last) == 1 + (not is_heard)


async def test_the_time_in_which_a_party_itself_worked_is_no_silence(monkeypatch):
    """Bug: a party that worked longer than its patience stopped: it had heard nothing."""
    clock = [100.0]
    monkeypatch.setattr("hdpvfl_mq.runtime.runner.monotonic", lambda: clock[0])
    node, link = Federation(manifest(), tables(60)).node("shop"), HeldLink()
    came = [[(b"frames",)]]
    monkeypatch.setattr(link, "take", lambda: came.pop() if came else [])
    looks = []

    def turn(arrivals, events):
        clock[0] += 100.0
        link.wake.set()  # nothing has been read yet
        return Turn((), (), None)

    async def wait():
        looks.append(clock[0])
        clock[0] += 6.0 * (len(looks) > 1)
        await asyncio.sleep(0)

    monkeypatch.setattr(node, "turn", turn)
    runner = Runner(node, link, patience_s=60, observe=lambda _: None)
    monkeypatch.setattr(runner, "_wait", wait)
    with pytest.raises(NetworkError, match="nothing heard for 60 s"):
        await asyncio.wait_for(runner.run(), 5)
    assert looks[-1] >= 200.0 + 50.0


async def test_a_window_cut_short_for_want_of_room_goes_on_when_its_start_is_acknowledged(ended):
    """Bug: a peer that had missed 64 MiB got one envelope each few seconds, like a silent one."""
    outbox, link = ended.mailbox._outbox["bank"], HeldLink()
    first = outbox.sent + 1
    large = [(b"header", b"%d" % number, bytes(2**17)) for number in range(10)]
    for each in large:
        outbox.keep(outbox.number(), each, 2**17)
    runner = Runner(ended, link, patience_s=60, observe=lambda _: None)
    pacing, nothing = runner._pacing, Turn((), (), None)
    pacing.after_turn(ended.mailbox, nothing, 0.0)
    ended.mailbox._lacking.add("bank")  # it is back and says what it has
    pacing.after_turn(ended.mailbox, nothing, 0.1)
    link.room = 2
    await runner._turn([], 0.1)
    assert link.sent == large[:2]
    for now, acknowledged, sent in ((0.2, 1, 2), (0.3, 2, 10), (0.4, 10, 10)):
        outbox.acknowledge(first + acknowledged - 1)
        pacing.after_turn(ended.mailbox, nothing, now)
        link.room = 1000
        await runner._turn([], now)
        assert link.sent == large[:sent]


@pytest.mark.parametrize("sent", [0, 2])
async def test_a_connection_with_room_for_some_copies_does_not_end_them(ended, sent):
    """What follows a new connection is cut short, too; if nothing goes, all comes again."""
    outbox, link = ended.mailbox._outbox["bank"], HeldLink()
    first = outbox.sent + 1
    large = [(b"header", b"%d" % number, bytes(2**17)) for number in range(4)]
    for each in large:
        outbox.keep(outbox.number(), each, 2**17)
    runner = Runner(ended, link, patience_s=60, observe=lambda _: None)
    runner._pacing.resend_at, link.room = 0.0, sent
    await runner._turn([], 0.1)
    assert link.sent == large[:sent]
    outbox.acknowledge(first + sent - 1)
    runner._pacing.after_turn(ended.mailbox, Turn((), (), None), 0.2)
    link.room = 1000
    await runner._turn([], 0.3)
    assert link.sent == (large if sent else [])
    await runner._turn([], 3.0)
    assert link.sent[: len(large)] == large


async def test_a_status_that_was_not_due_is_looked_at_again_without_a_message(monkeypatch):
    """On a fast machine a phase began so soon after the last status that nobody read of it."""
    node = Federation(manifest(), tables(60)).node("shop")
    observed, link = [], HeldLink()
    monkeypatch.setattr("hdpvfl_mq.runtime.runner.SETTLED_S", (0.02, 0.05))
    runner = Runner(node, link, patience_s=60, observe=lambda _: observed.append(node.steps))
    running = asyncio.create_task(runner.run())
    await asyncio.sleep(0.3)
    running.cancel()
    assert observed == [1, 1, 1]  # after the turn, and twice without one
