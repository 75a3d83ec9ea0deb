"""Journals rewritten after the run, some with stolen keys; checks 1 to 6 must notice them."""

from __future__ import annotations

from hdpvfl_mq.audit.evidence import Evidence
from hdpvfl_mq.journal import chain
from hdpvfl_mq.wire.codec import decode_body, decode_header, encode_body, encode_header
from schemas.delivery import Ack
from schemas.federation import Meet
from schemas.messages import RunClosed
from schemas.records import EnvelopeReceived, EnvelopeSent, Finish, Started
from tests.evidence import edited, last_received, only, relinked, replace_model, resigned, with_rows
from tests.unit.audit.honest import honest, honest_federation, records

# -- 1: records and order ---------------------------------------------------------------------


def renumbered() -> Evidence:
    evidence = honest()
    *rows, (index, stored, digest) = evidence.transcripts["shop"].rows
    return with_rows(evidence, "shop", [*rows, (index + 5, stored, digest)])


def unreadable() -> Evidence:
    evidence = honest()
    *rows, (index, stored, _) = evidence.transcripts["shop"].rows
    return with_rows(
        evidence, "shop", [*rows, (index, stored + b"\x00", chain.link(stored + b"\0"))]
    )


# -- 2: chain ---------------------------------------------------------------------------------


def altered_end() -> Evidence:
    evidence = honest()
    *rows, (index, _, digest) = evidence.transcripts["shop"].rows
    last = edited(records(evidence, "shop")[-1], effects=(Finish(outcome="refused"),))
    return with_rows(evidence, "shop", [*rows, (index, chain.encode(last), digest)])


def unlinked() -> Evidence:
    evidence = honest()
    *rows, (index, _, _) = evidence.transcripts["shop"].rows
    stored = chain.encode(edited(records(evidence, "shop")[-1], previous=bytes(32)))
    return with_rows(evidence, "shop", [*rows, (index, stored, chain.link(stored))])


# -- 3: signatures and epochs -----------------------------------------------------------------


def unsigned() -> Evidence:
    evidence = only(honest(), "shop")
    steps = records(evidence, "shop")
    at = last_received(steps, "coordinator")
    frames = list(steps[at].input.frames)
    frames[1] = bytes(64)
    steps[at] = edited(steps[at], input=EnvelopeReceived(frames=tuple(frames)))
    return with_rows(evidence, "shop", relinked(steps))


def swapped_keys() -> Evidence:
    evidence = honest()
    keys = {**evidence.keys, "shop": evidence.keys["telco"], "telco": evidence.keys["shop"]}
    return Evidence(evidence.run, keys, evidence.transcripts, evidence.ledgers)


def leaping_epoch() -> Evidence:
    evidence = honest()
    steps = records(evidence, "shop")
    first = steps[0].input
    started = Started(epoch=5, standing=first.standing)
    steps.append(edited(steps[-1], input=started, effects=()))
    return with_rows(evidence, "shop", relinked(steps))


def older_process() -> Evidence:
    """After a second process of the coordinator the first one speaks, to a party shown alone."""
    key = honest_federation().keys["coordinator"]
    evidence = only(honest(), "shop")
    steps = records(evidence, "shop")
    last = steps[last_received(steps, "coordinator")].input.frames
    header = decode_header(last)
    (mine,) = (each for each in header.to if each.party == "shop")
    for later, epoch in ((1, 2), (2, 1)):
        to = (replace_model(mine, sequence=mine.sequence + later),)
        again = encode_header(replace_model(header, to=to, epoch=epoch))
        frames = resigned((again, *last[1:]), key)
        steps.append(edited(steps[-1], input=EnvelopeReceived(frames=frames), effects=()))
    return with_rows(evidence, "shop", relinked(steps))


# -- 4: checkpoints and witnesses -------------------------------------------------------------


def rewritten_alone() -> Evidence:
    """The owner leaves out one record it received, and signs all it sent since again."""
    federation = honest_federation()
    evidence = only(honest(), "telco")
    steps = records(evidence, "telco")
    del steps[2]  # a welcome or an offer; whatever it was, the owner hides it
    rows = relinked(steps, federation.keys["telco"])
    return with_rows(evidence, "telco", rows)


def unknown_outcome() -> Evidence:
    """The coordinator ends the run in a way that does not exist, in a journal shown alone."""
    federation = honest_federation()
    evidence = only(honest(), "coordinator")
    steps = records(evidence, "coordinator")
    for number, record in enumerate(steps):
        effects = tuple(
            EnvelopeSent(frames=_ended_otherwise(effect.frames, federation.keys["coordinator"]))
            if isinstance(effect, EnvelopeSent)
            else effect
            for effect in record.effects
        )
        steps[number] = edited(record, effects=effects)
    return with_rows(evidence, "coordinator", relinked(steps, federation.keys["coordinator"]))


def _ended_otherwise(frames, key):
    body = frames[2].replace(b"\xa7outcome\xa9completed", b"\xa7outcome\xa9completeX")
    return resigned((*frames[:2], body, *frames[3:]), key)


def met_somebody() -> Evidence:
    """The owner adds an effect that only a federation's journal has, and signs all again."""
    federation = honest_federation()
    evidence = only(honest(), "telco")
    steps = records(evidence, "telco")
    meets = Meet(party="mallory", role="passive", verify_key=bytes(32))
    steps[-1] = edited(steps[-1], effects=(*steps[-1].effects, meets))
    return with_rows(evidence, "telco", relinked(steps, federation.keys["telco"]))


def rewritten_answer() -> Evidence:
    """The owner changes what it accepted long ago, and signs all it sent since again."""
    federation = honest_federation()
    evidence = only(honest(), "telco")
    steps = records(evidence, "telco")
    for number, record in enumerate(steps):
        for effect in record.effects:
            if (
                isinstance(effect, EnvelopeSent)
                and decode_header(effect.frames).kind == "run_accept"
            ):
                frames = effect.frames
                accept = decode_body(decode_header(frames), frames)
                body, _ = encode_body(replace_model(accept, columns=99))
                changed = EnvelopeSent(frames=(frames[0], frames[1], body))
                steps[number] = edited(record, effects=(changed,))
    return with_rows(evidence, "telco", relinked(steps, federation.keys["telco"]))


def truncated() -> Evidence:
    evidence = honest()
    return with_rows(evidence, "bank", evidence.transcripts["bank"].rows[:-6])


def forked() -> Evidence:
    """The owner shows the peers' auditor a journal in which its last report never happened."""
    evidence = honest()
    steps = records(evidence, "shop")
    at = max(
        r.index
        for r in steps
        for e in r.effects
        if isinstance(e, EnvelopeSent) and decode_header(e.frames).kind == "round_report"
    )
    steps[at] = edited(steps[at], effects=steps[at].effects[:-1])
    rows = relinked(steps, honest_federation().keys["shop"])
    return with_rows(evidence, "shop", rows)


# -- 5: both ends -----------------------------------------------------------------------------


def two_endings() -> Evidence:
    """The coordinator told one party another ending than its own journal says."""
    federation, evidence = honest_federation(), honest()
    steps = records(evidence, "shop")
    at = last_received(steps, "coordinator")
    frames = steps[at].input.frames
    body, _ = encode_body(RunClosed(outcome="deadline", reason="made up"))
    frames = resigned((frames[0], frames[1], body), federation.keys["coordinator"])
    steps[at] = edited(steps[at], input=EnvelopeReceived(frames=frames))
    return with_rows(evidence, "shop", relinked(steps, federation.keys["shop"]))


# -- 6: schema ----------------------------------------------------------------------------------


def wrong_body() -> Evidence:
    """A coordinator's last word has a body that is no message."""
    federation, evidence = honest_federation(), only(honest(), "shop")
    steps = records(evidence, "shop")
    at = last_received(steps, "coordinator")
    frames = steps[at].input.frames
    body, _ = encode_body(Ack())
    frames = resigned((frames[0], frames[1], body), federation.keys["coordinator"])
    steps[at] = edited(steps[at], input=EnvelopeReceived(frames=frames))
    return with_rows(evidence, "shop", relinked(steps, federation.keys["shop"]))
