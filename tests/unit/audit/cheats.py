"""Runs of parties that depart from the protocol with consistent journals: checks 6 to 13."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from hdpvfl_mq.audit.evidence import Evidence
from hdpvfl_mq.errors import HdpvflError
from hdpvfl_mq.machine import Finish, Reserve, Send
from hdpvfl_mq.privacy.ledger import EMPTY_LEDGER, decode, encode, extend
from hdpvfl_mq.privacy.pure import pure_units_of
from schemas.messages import RunClosed
from schemas.methods import PrivateModel
from schemas.privacy import CapFixed, ReleaseBooked, RunReserved, SlotShare, SpendEvent
from tests.evidence import (
    CheatingFederation,
    evidence_of,
    hearing,
    only,
    replace_model,
    saying,
    with_rows,
)
from tests.federation import manifest, tables
from tests.unit.audit.honest import ROWS, SMALL, cheating, honest, honest_federation

SHOPS = ("shop", "telco")

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


def with_earlier(*earlier, slots=()) -> Evidence:
    """The shop's ledger with pure slots in its cap and entries of a run before this one."""
    evidence, rows = honest(), []
    head = EMPTY_LEDGER
    for _, _, _, body, opening in evidence.ledgers["shop"]:
        entry = decode(body)
        if isinstance(entry, CapFixed):
            entry = replace_model(entry, pure_slots=slots)
        entries = [*earlier, entry] if isinstance(entry, RunReserved) else [entry]
        for each in entries:
            filed = each.event.release_id if isinstance(each, ReleaseBooked) else None
            head = extend(head, encode(each), opening)
            rows.append((head.sequence, head.digest, filed, encode(each), opening))
    shown = only(evidence, "shop").transcripts
    return Evidence(evidence.run, evidence.keys, shown, {"shop": tuple(rows)})


def earlier_reserve(mu2: int, *shares: SlotShare) -> RunReserved:
    seen = [decode(body) for _, _, _, body, _ in honest().ledgers["shop"]]
    reserve = next(entry for entry in seen if isinstance(entry, RunReserved))
    return replace_model(reserve, run="earlier", mu2_units=mu2, pure=shares)


def over_the_cap() -> Evidence:
    """Reserves of an earlier run leave no room under the ledger's cap."""
    return with_earlier(earlier_reserve(2**47))


SLOT = pure_units_of(0.5)


def pure_release(number: int) -> ReleaseBooked:
    """A bounded release of the earlier run, in slot 0."""
    name = f"earlier/shop/share/{number}"
    event = SpendEvent(
        release_id=name,
        round=number,
        mechanism="piecewise",
        mu2_units=0,
        tau_units=0,
        pure_units=SLOT,
    )
    dataset = earlier_reserve(0).dataset
    return ReleaseBooked(dataset=dataset, run="earlier", event=event, digest=bytes(32), slot=0)


def honest_slots() -> Evidence:
    """An earlier run took one of two slots and is still open: nothing is wrong."""
    share = SlotShare(slot=0, units=SLOT)
    return with_earlier(earlier_reserve(0, share), pure_release(0), slots=(SLOT, SLOT))


def slot_taken_twice() -> Evidence:
    """A share of a pure slot was reserved once and pays for two releases."""
    share = SlotShare(slot=0, units=SLOT)
    entries = (earlier_reserve(0, share), pure_release(0), pure_release(1))
    return with_earlier(*entries, slots=(SLOT, SLOT))


def slot_overfilled() -> Evidence:
    """Two shares in one slot are larger than it, though the other slot is empty."""
    share = SlotShare(slot=0, units=SLOT)
    return with_earlier(earlier_reserve(0, share, share), slots=(SLOT, SLOT))


def slots_became_mu2() -> Evidence:
    """Slots that nobody uses take nearly all of the cap; the run is paid as if they did not."""
    seen = [decode(body) for _, _, _, body, _ in honest().ledgers["shop"]]
    cap = next(entry.cap for entry in seen if isinstance(entry, CapFixed))
    return with_earlier(slots=(pure_units_of(cap.epsilon * 0.999),))


def other_seed() -> Evidence:
    """After a restart a party commits to another noise seed."""

    def change(hello):
        return hello if hello.epoch == 1 else replace_model(hello, seed_commitment=bytes(32))

    return cheating(shop={"says": saying("hello", change)}, restart="shop")


# -- ledgers rewritten as a whole, and ends without rounds -----------------------------------------


def earlier_run_dropped() -> Evidence:
    """A ledger whose entries before this run are gone, with the chain computed again."""
    return ledger_with(honest(), "shop", lambda e: None if e.kind == "secret" else e)


def cap_changed() -> Evidence:
    def change(entry):
        if entry.kind != "cap":
            return entry
        return replace_model(entry, cap=replace_model(entry.cap, epsilon=entry.cap.epsilon / 2))

    return ledger_with(honest(), "shop", change)


def payload_changed() -> Evidence:
    """One entry says that something else left, and the chain from there on is computed again."""

    def change(entry):
        is_first = isinstance(entry, ReleaseBooked) and entry.event.round == 0
        return replace_model(entry, digest=bytes(32)) if is_first else entry

    return ledger_with(honest(), "telco", change)


def cut_alone() -> Evidence:
    """A journal without its last rounds, shown alone beside the whole ledger."""
    evidence = only(honest(), "shop", ledgers=True)
    shown = evidence.transcripts["shop"]
    last = [e.place.index for e in shown.sent() if e.header.kind == "score_share"][-1]
    return with_rows(evidence, "shop", shown.rows[:last])


def cut_before_the_plan() -> Evidence:
    """A journal without an offer, shown alone beside the whole ledger."""
    evidence = only(honest(), "shop", ledgers=True)
    return with_rows(evidence, "shop", evidence.transcripts["shop"].rows[:1])


def small_noise_in_the_private_model() -> Evidence:
    """Scores with a thousandth of the noise that the plan asks for."""

    def change(message):
        return release_with(noise_std=message.release.noise_std / 1000)(message)

    private = manifest(method=PrivateModel(columns_max=8))
    lie = {"says": saying("score_share", change)}
    federation = CheatingFederation(private, tables(ROWS), cheats=dict.fromkeys(SHOPS, lie))
    federation.simulate()
    return evidence_of(federation, ledgers=False)


def completed_without_rounds() -> Evidence:
    """A party that ends as completed when it is told so, whatever it has done."""

    def says(effect):
        is_mismatch = isinstance(effect, Finish) and effect.outcome == "mismatch"
        return (Finish(outcome="completed"),) if is_mismatch else (effect,)

    def closes(effect):
        is_plan = isinstance(effect, Send) and effect.message.kind == "round_plan"
        closing = Send(("bank", "shop", "telco"), RunClosed(outcome="completed", reason=""))
        return (effect, closing) if is_plan else (effect,)

    evidence = cheating(coordinator={"says": closes}, shop={"says": says})
    return only(evidence, "shop")
