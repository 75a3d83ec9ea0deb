"""Tampered evidence, each with the check that notices it: the list both verifiers agree on.

For every number there is at least one case that no other check notices.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import cache

from hdpvfl_mq.errors import HdpvflError
from hdpvfl_mq.journal import chain
from hdpvfl_mq.journal.evidence import Evidence
from hdpvfl_mq.machine import Reserve, Send
from hdpvfl_mq.privacy.ledger import GENESIS, decode, encode, extend
from hdpvfl_mq.wire.codec import decode_body, decode_header, encode_body
from schemas.messages import Ack, RunClosed
from schemas.privacy import ReleaseBooked, RunReserved
from schemas.records import EnvelopeInput, FinishedEffect, SentEffect, StartedInput
from tests.evidence import (
    CheatingFederation,
    edited,
    evidence_of,
    hearing,
    last_received,
    only,
    relinked,
    replace_model,
    resigned,
    saying,
    with_rows,
)
from tests.federation import Federation, manifest, tables

SMALL = {"batch_rows": 20}
ROWS = 44


@cache
def honest_federation() -> Federation:
    federation = Federation(manifest(**SMALL), tables(ROWS))
    federation.simulate()
    return federation


def honest() -> Evidence:
    return evidence_of(honest_federation())


def cheating(*, restart: str | None = None, **cheats) -> Evidence:
    federation = CheatingFederation(manifest(**SMALL), tables(ROWS), cheats=cheats)
    federation.simulate()
    if restart is not None:
        node = federation.node(restart)
        node.open()
        node.start()
    return evidence_of(federation, ledgers=False)


def records(evidence: Evidence, party: str):
    return list(evidence.transcripts[party].records)


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
    last = edited(records(evidence, "shop")[-1], effects=(FinishedEffect(outcome="refused"),))
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
    steps[at] = edited(steps[at], input=EnvelopeInput(frames=tuple(frames)))
    return with_rows(evidence, "shop", relinked(steps))


def swapped_keys() -> Evidence:
    evidence = honest()
    keys = {**evidence.keys, "shop": evidence.keys["telco"], "telco": evidence.keys["shop"]}
    return Evidence(evidence.run, keys, evidence.transcripts, evidence.ledgers)


def leaping_epoch() -> Evidence:
    evidence = honest()
    steps = records(evidence, "shop")
    first = steps[0].input
    started = StartedInput(epoch=5, standing=first.standing)
    steps.append(edited(steps[-1], input=started, effects=()))
    return with_rows(evidence, "shop", relinked(steps))


# -- 4: checkpoints and witnesses -------------------------------------------------------------


def rewritten_alone() -> Evidence:
    """The owner leaves out one record it received, and signs all it sent since anew."""
    federation = honest_federation()
    evidence = only(honest(), "telco")
    steps = records(evidence, "telco")
    del steps[2]  # a welcome or an offer; whatever it was, the owner hides it
    rows = relinked(steps, federation.keys["telco"])
    return with_rows(evidence, "telco", rows)


def rewritten_answer() -> Evidence:
    """The owner changes what it accepted long ago, and signs all it sent since anew."""
    federation = honest_federation()
    evidence = only(honest(), "telco")
    steps = records(evidence, "telco")
    for number, record in enumerate(steps):
        for effect in record.effects:
            if isinstance(effect, SentEffect) and decode_header(effect.frames).kind == "run_accept":
                frames = effect.frames
                accept = decode_body(decode_header(frames), frames)
                body, _ = encode_body(replace_model(accept, columns=99))
                changed = SentEffect(frames=(frames[0], frames[1], body))
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
        if isinstance(e, SentEffect) and decode_header(e.frames).kind == "round_report"
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
    steps[at] = edited(steps[at], input=EnvelopeInput(frames=frames))
    return with_rows(evidence, "shop", relinked(steps, federation.keys["shop"]))


# -- 6 to 8: messages, plan, rows -------------------------------------------------------------


def unroutable() -> Evidence:
    """A passive party gives a party what only a coordinator may say."""

    def says(effect):
        closing = isinstance(effect, Send) and effect.message.kind == "ledger_witness"
        stray = Send(("telco",), RunClosed(outcome="completed", reason=""))
        return (effect, stray) if closing else (effect,)

    return cheating_until_stuck(shop={"says": says})


def cheating_until_stuck(**cheats) -> Evidence:
    """A cheat the others refuse, so that the run ends by its deadline; the journals up to then."""
    brief = manifest(**SMALL, deadline_s=20.0)
    federation = CheatingFederation(brief, tables(ROWS), cheats=cheats)
    with suppress(HdpvflError):  # however it ended, the journals are what is looked at
        federation.simulate()
    return evidence_of(federation, ledgers=False)


def wrong_body() -> Evidence:
    """A coordinator's last word has a body that is no message."""
    federation, evidence = honest_federation(), only(honest(), "shop")
    steps = records(evidence, "shop")
    at = last_received(steps, "coordinator")
    frames = steps[at].input.frames
    body, _ = encode_body(Ack())
    frames = resigned((frames[0], frames[1], body), federation.keys["coordinator"])
    steps[at] = edited(steps[at], input=EnvelopeInput(frames=frames))
    return with_rows(evidence, "shop", relinked(steps, federation.keys["shop"]))


def other_plan() -> Evidence:
    """All agree on a plan that does not follow from the manifest."""
    federation = honest_federation()
    real = federation.node("bank")
    real.open()
    digest = real.state.training.plan.digest
    lie = saying("aligned", lambda m: replace_model(m, plan_digest=bytes(32)))
    back = hearing("round_plan", lambda m: replace_model(m, plan_digest=digest))
    cheat = {"says": lie, "hears": back}
    return cheating(bank=cheat, shop=cheat, telco=cheat)


def same_rows_again() -> Evidence:
    """A passive party releases the rows of one round a second time, under another id, for free."""

    def says(effect):
        if not (isinstance(effect, Send) and effect.message.kind == "score_share"):
            return (effect,)
        message = effect.message
        if message.round != 2:
            return (effect,)
        again = replace_model(
            message.release,
            event=replace_model(message.release.event, mu2_units=0, tau_units=0),
        )
        return (effect, Send(effect.to, replace_model(message, release=again)))

    return cheating(shop={"says": says})


# -- 9 to 13: prices --------------------------------------------------------------------------


def release_with(**changes) -> Callable:
    return lambda m: replace_model(m, release=replace_model(m.release, **changes))


def small_sigma() -> Evidence:
    def change(message):
        return release_with(noise_std=message.release.noise_std / 2)(message)

    return cheating(shop={"says": saying("score_share", change)})


def one_small_sigma() -> Evidence:
    def change(message):
        small = message.round == 1
        return release_with(noise_std=1.0)(message) if small else message

    return cheating(bank={"says": saying("residual", change)})


def cheap_release() -> Evidence:
    def change(message):
        event = message.release.event
        return release_with(event=replace_model(event, mu2_units=event.mu2_units // 2))(message)

    return cheating(bank={"says": saying("residual", change)})


def ledger_with(evidence: Evidence, party: str, change: Callable) -> Evidence:
    """A ledger whose entries are changed and chained anew."""
    head, rows = GENESIS, []
    for _, _, release_id, body in evidence.ledgers[party]:
        changed = change(decode(body))
        if changed is not None:
            head = extend(head, encode(changed))
            rows.append((head.sequence, head.digest, release_id, encode(changed)))
    ledgers = {**evidence.ledgers, party: tuple(rows)}
    return Evidence(evidence.run, evidence.keys, evidence.transcripts, ledgers)


def ledger_forgets() -> Evidence:
    """The owner takes the last spend out of its ledger and chains it anew."""
    evidence = honest()
    last = max(s for s, _, release, _ in evidence.ledgers["shop"] if release)
    body = next(b for s, _, _, b in evidence.ledgers["shop"] if s == last)
    return ledger_with(evidence, "shop", lambda e: None if encode(e) == body else e)


def ledger_discount() -> Evidence:
    def change(entry):
        if isinstance(entry, ReleaseBooked) and entry.event.round == 1:
            return replace_model(entry, event=replace_model(entry.event, mu2_units=0))
        return entry

    return ledger_with(honest(), "bank", change)


def reused_id() -> Evidence:
    """One release id leaves with two payloads."""
    run = manifest().run

    def renamed(message, round_, name):
        if message.round != round_:
            return message
        named = f"{run}/shop/share/{name}"
        event = replace_model(message.release.event, release_id=named)
        return release_with(release_id=named, event=event)(message)

    says = saying("score_share", lambda m: renamed(m, 3, 2))
    hears = hearing(
        "score_share", lambda m: renamed(m, 3, 3) if "/shop/" in m.release.release_id else m
    )
    return cheating(shop={"says": says}, bank={"hears": hears})


def small_reserve() -> Evidence:
    def says(effect):
        if isinstance(effect, Reserve):
            return (Reserve(effect.mu2_units // 2, effect.tau_units, effect.exact),)
        return (effect,)

    return cheating(telco={"says": says})


def over_the_cap() -> Evidence:
    """Reserves of an earlier run leave no room under the ledger's cap."""
    evidence, seen = honest(), []

    def change(entry):
        if isinstance(entry, RunReserved) and not seen:
            seen.append(entry)
        return entry

    evidence = ledger_with(evidence, "shop", change)
    head, rows = GENESIS, []
    for _, _, release_id, body in evidence.ledgers["shop"]:
        bodies = [(release_id, body)]
        if isinstance(decode(body), RunReserved):
            earlier = replace_model(seen[0], run="earlier", mu2_units=2**47)
            bodies.insert(0, (None, encode(earlier)))
        for filed, stored in bodies:
            head = extend(head, stored)
            rows.append((head.sequence, head.digest, filed, stored))
    shown = only(evidence, "shop").transcripts
    return Evidence(evidence.run, evidence.keys, shown, {"shop": tuple(rows)})


def other_seed() -> Evidence:
    """After a restart a party commits to another noise seed."""

    def change(hello):
        return hello if hello.epoch == 1 else replace_model(hello, seed_commitment=bytes(32))

    return cheating(shop={"says": saying("hello", change)}, restart="shop")


@dataclass(frozen=True)
class Case:
    name: str
    make: Callable[[], Evidence]
    number: int  # of the check that must notice
    alone: bool = True  # and no other check does


CASES = (
    Case("renumbered", renumbered, 1),
    Case("unreadable", unreadable, 1),
    Case("altered end", altered_end, 2),
    Case("unlinked", unlinked, 2),
    Case("unsigned", unsigned, 3),
    Case("swapped keys", swapped_keys, 3),
    Case("leaping epoch", leaping_epoch, 3),
    Case("rewritten alone", rewritten_alone, 4, alone=False),
    Case("rewritten answer", rewritten_answer, 4),
    Case("truncated", truncated, 4, alone=False),
    Case("forked", forked, 4, alone=False),
    Case("two endings", two_endings, 5),
    Case("unroutable", unroutable, 6),
    Case("wrong body", wrong_body, 6),
    Case("other plan", other_plan, 7),
    Case("same rows again", same_rows_again, 8),
    Case("small sigma", small_sigma, 9),
    Case("one small sigma", one_small_sigma, 9),
    Case("cheap release", cheap_release, 10),
    Case("ledger forgets", ledger_forgets, 10),
    Case("ledger discount", ledger_discount, 10),
    Case("reused id", reused_id, 11),
    Case("small reserve", small_reserve, 12),
    Case("over the cap", over_the_cap, 12, alone=False),
    Case("other seed", other_seed, 13),
)
