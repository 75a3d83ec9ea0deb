"""A liar that changes its own journal, or what it shows of it, puts nobody else at fault."""

from __future__ import annotations

import re

import pytest

from hdpvfl_mq.audit.audit import audit
from hdpvfl_mq.wire.codec import decode_body, decode_header, encode_body, encode_header
from schemas.ids import COORDINATOR
from schemas.messages import Pause, Resume
from schemas.records import EnvelopeReceived, EnvelopeSent, TimerFired
from scripts import verify_journal
from tests.evidence import edited, only, relinked, replace_model, resigned, with_rows, write_run
from tests.federation import manifest
from tests.unit.audit import echoed
from tests.unit.audit.honest import SMALL, honest, honest_federation, records
from tests.unit.audit.test_echoes import at_fault

pytestmark = pytest.mark.seconds
HONEST = ("bank", "shop", "telco")


def found_by(evidence, folder) -> tuple[str, str]:
    """The findings of both verifiers."""
    said = " ".join(verdict.found for verdict in audit(evidence))
    return said, " ".join(verify_journal.verify(write_run(evidence, folder)).values())


def named_in(evidence, folder) -> set[str]:
    return {
        name for text in found_by(evidence, folder) for name in re.findall(r"fault: (\w+)", text)
    }


def changed_body(frames, **changes):
    """An envelope with another body; its signature does not fit any more."""
    message = decode_body(decode_header(frames), frames)
    return (*frames[:2], encode_body(replace_model(message, **changes))[0], *frames[3:])


def received(steps, kind: str) -> int:
    """The first record in which a message of this kind arrived."""
    return next(
        step.index
        for step in steps
        if isinstance(step.input, EnvelopeReceived)
        and decode_header(step.input.frames).kind == kind
    )


# -- the coordinator's journal stands for that of a party ------------------------------------------


@pytest.mark.parametrize(
    "journals", [HONEST, (COORDINATOR, "bank"), (COORDINATOR, "bank", "telco")]
)
def test_a_party_that_refused_an_order_before_the_first_plan_is_not_at_fault(journals, tmp_path):
    """Bug: the coordinator's journal counted it as taken, and named the party that had refused."""
    assert at_fault(echoed.shown(COORDINATOR, "early resume", *journals), tmp_path) == set()


@pytest.mark.parametrize(
    ("lie", "shown"),
    [("two resumes", Resume(round=3, absent=())), ("one resume", Pause(waiting_for=()))],
)
def test_an_order_that_was_not_sent_puts_its_receiver_not_at_fault(lie, shown, tmp_path):
    """Bug: the coordinator showed another envelope under a number that a party acknowledged."""
    evidence = echoed.shown(COORDINATOR, lie, COORDINATOR, "bank")
    key = honest_federation().keys[COORDINATOR]

    def instead(effect):
        if not isinstance(effect, EnvelopeSent):
            return effect
        header = decode_header(effect.frames)
        if header.kind != "resume" or header.to[0].party != "shop":
            return effect
        return EnvelopeSent(frames=resigned(_as(effect.frames, shown), key))

    steps = records(evidence, COORDINATOR)
    steps = [edited(step, effects=tuple(map(instead, step.effects))) for step in steps]
    forged = with_rows(evidence, COORDINATOR, relinked(steps))
    assert named_in(forged, tmp_path) == set()


def _as(frames, message):
    """An envelope to the same receivers with another message."""
    header = replace_model(decode_header(frames), kind=message.kind)
    return (encode_header(header), frames[1], encode_body(message)[0])


def test_another_manifest_shown_puts_who_kept_to_the_first_not_at_fault(tmp_path):
    """Bug: verify_journal took an order for legal by a manifest that the party never agreed to."""
    evidence = echoed.shown(COORDINATOR, "resume without one", COORDINATOR, "bank")
    for party in (COORDINATOR, "bank"):
        steps = [_with_another_manifest(step) for step in records(evidence, party)]
        evidence = with_rows(evidence, party, relinked(steps))
    assert "echoes orders that differ" in found_by(evidence, tmp_path / "one")[1]
    assert named_in(evidence, tmp_path / "two") == set()


def _with_another_manifest(step):
    """The same step with an offer that allows absence, and without anybody's answer to it."""

    def instead(each):
        if not isinstance(each, EnvelopeSent | EnvelopeReceived):
            return each
        header = decode_header(each.frames)
        if header.kind == "run_accept":
            return None
        if header.kind != "run_offer":
            return each
        offered = decode_body(header, each.frames).manifest
        frames = changed_body(each.frames, manifest=replace_model(offered, absence="last"))
        return type(each)(frames=resigned(frames, honest_federation().keys[COORDINATOR]))

    given = instead(step.input) or TimerFired(timer="none")
    return edited(step, input=given, effects=tuple(filter(None, map(instead, step.effects))))


# -- a party changes its own journal ---------------------------------------------------------------


def test_an_order_left_out_of_a_journal_puts_the_coordinator_not_at_fault(tmp_path):
    """Bug: the orders after it moved up one place, and differed from those of all others."""
    evidence = echoed.shown("shop", "none", *HONEST)
    steps = records(evidence, "shop")
    del steps[received(steps, "round_plan")]
    assert named_in(with_rows(evidence, "shop", relinked(steps)), tmp_path) == set()


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("round_plan", {"last": 1}),
        ("run_offer", {"manifest": replace_model(manifest(**SMALL), seed=9)}),
    ],
)
def test_an_envelope_that_its_sender_never_signed_puts_it_not_at_fault(kind, changes, tmp_path):
    """Bug: an audit named the coordinator for what a party had written into its own journal."""
    evidence = only(honest(), *HONEST)
    steps = records(evidence, "shop")
    at = received(steps, kind)
    frames = changed_body(steps[at].input.frames, **changes)
    steps[at] = edited(steps[at], input=EnvelopeReceived(frames=frames))
    assert named_in(with_rows(evidence, "shop", relinked(steps)), tmp_path) == set()


def test_a_payload_that_its_sender_never_signed_puts_it_not_at_fault(tmp_path):
    """Bug: a party that changed a residual in its journal put the active party at fault."""
    evidence = only(honest(), *HONEST)
    steps = records(evidence, "shop")
    at = received(steps, "residual")
    *frames, array = steps[at].input.frames
    changed = (*frames, bytes(len(array)))
    steps[at] = edited(steps[at], input=EnvelopeReceived(frames=changed))
    forged = with_rows(evidence, "shop", relinked(steps))
    assert "two payloads" in found_by(forged, tmp_path / "one")[0]
    assert named_in(forged, tmp_path / "two") == set()


@pytest.mark.parametrize(("cut", "named"), [(False, {"telco"}), (True, set())])
def test_a_changed_envelope_puts_its_honest_witness_not_at_fault(cut, named, tmp_path):
    """Bug: the coordinator had seen telco's last report, and telco then showed another one."""
    evidence = only(honest(), "bank", "telco")
    steps = records(evidence, "telco")
    at = max(step.index for step in steps if _reports(step))
    frames = next(e.frames for e in steps[at].effects if isinstance(e, EnvelopeSent))
    other = resigned(changed_body(frames, rounds_done=1), honest_federation().keys["telco"])
    steps[at] = edited(steps[at], effects=(EnvelopeSent(frames=other),))
    rows = relinked(steps)[: at + 1] if cut else relinked(steps)
    forged = with_rows(evidence, "telco", rows)
    assert "that differs from the one in its journal" in found_by(forged, tmp_path / "one")[0]
    assert named_in(forged, tmp_path / "two") == named


def _reports(step) -> bool:
    sent = [e.frames for e in step.effects if isinstance(e, EnvelopeSent)]
    return any(decode_header(frames).kind == "round_report" for frames in sent)


def test_an_order_hidden_under_its_number_puts_the_coordinator_not_at_fault(tmp_path):
    """Bug: a party put a message that nobody signed in the place of an order."""
    evidence = echoed.shown("shop", "none", *HONEST)
    steps = records(evidence, "shop")
    at = received(steps, "round_plan")
    frames = _as(steps[at].input.frames, Pause(waiting_for=()))
    steps[at] = edited(steps[at], input=EnvelopeReceived(frames=frames))
    forged = with_rows(evidence, "shop", relinked(steps))
    assert "different orders" in found_by(forged, tmp_path / "one")[0]
    assert named_in(forged, tmp_path / "two") == set()


def test_an_older_envelope_shown_as_seen_puts_its_sender_not_at_fault(tmp_path):
    """Bug: a party named under a number an envelope that it had received under another one."""
    evidence = only(honest(), COORDINATOR, "shop")
    steps = records(evidence, "shop")
    at = max(step.index for step in steps if _reports(step))
    older = next(evidence.transcripts["shop"].received())
    assert older.header.sender == COORDINATOR
    frames = next(e.frames for e in steps[at].effects if isinstance(e, EnvelopeSent))
    header = decode_header(frames)
    (mark,) = header.to
    assert mark.ack > 1
    header = replace_model(header, to=(replace_model(mark, seen=older.digest),))
    other = resigned((encode_header(header), *frames[1:]), honest_federation().keys["shop"])
    steps[at] = edited(steps[at], effects=(EnvelopeSent(frames=other),))
    forged = with_rows(evidence, "shop", relinked(steps))
    assert "that differs from the one in its journal" in found_by(forged, tmp_path / "one")[0]
    assert named_in(forged, tmp_path / "two") == {"shop"}


def test_reports_in_another_order_put_their_sender_not_at_fault(tmp_path):
    """Bug: verify_journal read a party's reports in the order of the coordinator's journal."""
    evidence = echoed.shown("shop", "none", COORDINATOR, "shop")
    steps = records(evidence, COORDINATOR)
    at = [
        step.index
        for step in steps
        if isinstance(step.input, EnvelopeReceived)
        and (header := decode_header(step.input.frames)).sender == "shop"
        and header.kind == "round_report"
    ]
    first, last = steps[at[0]], steps[at[-1]]
    steps[at[0]], steps[at[-1]] = edited(first, input=last.input), edited(last, input=first.input)
    assert named_in(with_rows(evidence, COORDINATOR, relinked(steps)), tmp_path) == set()
