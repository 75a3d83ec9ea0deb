"""Runs of parties that depart from the protocol with consistent journals: checks 6 to 13."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from hdpvfl_mq.audit.evidence import Evidence
from hdpvfl_mq.errors import HdpvflError
from hdpvfl_mq.machine import Reserve, Send
from hdpvfl_mq.privacy.ledger import EMPTY_LEDGER, decode, encode, extend
from schemas.messages import RunClosed
from schemas.privacy import ReleaseBooked, RunReserved
from tests.evidence import CheatingFederation, evidence_of, hearing, only, replace_model, saying
from tests.federation import manifest, tables
from tests.unit.audit.honest import ROWS, SMALL, cheating, honest, honest_federation

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


def other_plan() -> Evidence:
    """All agree on a plan that does not follow from the manifest."""
    federation = honest_federation()
    real = federation.node("bank")
    real.open()
    digest = real.state.trained.setup.plan.digest
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
    """A ledger whose entries are changed and chained again."""
    head, rows = EMPTY_LEDGER, []
    for _, _, release_id, body, opening in evidence.ledgers[party]:
        changed = change(decode(body))
        if changed is not None:
            head = extend(head, encode(changed), opening)
            rows.append((head.sequence, head.digest, release_id, encode(changed), opening))
    ledgers = {**evidence.ledgers, party: tuple(rows)}
    return Evidence(evidence.run, evidence.keys, evidence.transcripts, ledgers)


def ledger_forgets() -> Evidence:
    """The owner takes the last spend out of its ledger and chains it again."""
    evidence = honest()
    last = max(s for s, _, release, *_ in evidence.ledgers["shop"] if release)
    body = next(b for s, _, _, b, _ in evidence.ledgers["shop"] if s == last)
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
            return (
                Reserve(
                    mu2_units=effect.mu2_units // 2, tau_units=effect.tau_units, exact=effect.exact
                ),
            )
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
    head, rows = EMPTY_LEDGER, []
    for _, _, release_id, body, opening in evidence.ledgers["shop"]:
        bodies = [(release_id, body)]
        if isinstance(decode(body), RunReserved):
            earlier = replace_model(seen[0], run="earlier", mu2_units=2**47)
            bodies.insert(0, (None, encode(earlier)))
        for filed, stored in bodies:
            head = extend(head, stored, opening)
            rows.append((head.sequence, head.digest, filed, stored, opening))
    shown = only(evidence, "shop").transcripts
    return Evidence(evidence.run, evidence.keys, shown, {"shop": tuple(rows)})


def other_seed() -> Evidence:
    """After a restart a party commits to another noise seed."""

    def change(hello):
        return hello if hello.epoch == 1 else replace_model(hello, seed_commitment=bytes(32))

    return cheating(shop={"says": saying("hello", change)}, restart="shop")
