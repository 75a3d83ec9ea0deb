"""What active and passive parties have in common: joining, the offer, and their table.

It owns the moves before the rounds and the table of all moves around them. It does not know the
coordinator's orders (orders.py), what a round computes, or how a run ends (leaving.py, closing.py,
completion.py). Pure: data and secrets are fixed in `Assets`, everything else is folded from the
inputs.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from hdpvfl_mq.errors import RefusedError, SettingsError
from hdpvfl_mq.glm.families import family
from hdpvfl_mq.glm.response import check_declared
from hdpvfl_mq.machine import (
    Move,
    Moves,
    Received,
    Send,
    Started,
    Step,
    arm,
    stay,
)
from hdpvfl_mq.methods import plan_run
from hdpvfl_mq.privacy.noise import commitment
from hdpvfl_mq.psi import rules_digest
from hdpvfl_mq.wire.codec import model_digest
from parties import alignment, orders, witness
from parties.admission import broken_rule
from parties.agreement import reserved, with_news
from parties.assets import Assets
from parties.closing import caught_up, closed, closed_leaving, closed_training
from parties.completion import rounds_over, witnessed
from parties.leaving import (
    CLOSING_S,
    GRACE_S,
    asked_to,
    peer_left,
    refused,
    stuck,
    too_late,
    too_long,
    wronged,
)
from parties.phases import (
    Accepted,
    Agreeing,
    Aligned,
    Aligning,
    Closed,
    Joining,
    Leaving,
    Over,
    Phase,
    Running,
    Starting,
    Training,
    WithRows,
)
from schemas.base import in_words
from schemas.config import RunManifest
from schemas.ids import COORDINATOR
from schemas.messages import (
    Hello,
    RunAccept,
    RunOffer,
    RunRefuse,
    Welcome,
)

P = TypeVar("P", bound=Phase)


def started(own: Assets, state: Starting | Running, given: Started) -> Step[Running]:
    """Say hello to the coordinator, at the first start and at every restart."""
    hello = Hello(
        epoch=given.epoch,
        seed_commitment=commitment(own.secret, own.salt),
        toss_commitment=alignment.toss_commitment(own),
        dataset_fingerprint=own.derived(b"fingerprint" + own.data.fingerprint),
        numeric_profile=in_words(own.numeric_profile),
        ledger=given.standing.head,
    )
    greeting = (Send((COORDINATOR,), hello),)
    if isinstance(state, Starting):
        return Joining(standing=given.standing), greeting
    return replace(state, standing=with_news(state.standing, given.standing)), greeting


def welcome(own: Assets, state: P, given: Received[Welcome]) -> Step[P]:
    """Store whom the coordinator waits for."""
    return replace(state, waiting_for=given.message.waiting_for), ()


def offer(own: Assets, state: Joining, given: Received[RunOffer]) -> Step[Leaving | Accepted]:
    """Accept the offer, or refuse it and name the rule that forbids it."""
    manifest = given.message.manifest
    rule = broken_rule(own, manifest, state.standing) or _misfit(own, manifest)
    if rule is not None:
        public, detail = rule
        refusal = Send((COORDINATOR,), RunRefuse(rule=in_words(public)))
        return refused(state, detail or public), (refusal, arm("closing", CLOSING_S))
    accept = RunAccept(
        manifest_digest=model_digest(manifest),
        id_profile_digest=rules_digest(own.id_rules),
        set_size=own.ids.people,
        columns=own.data.X.shape[1],
        kept_alignment=kept.name if (kept := own.kept_for(manifest)) else None,
    )
    reminders = witness.remind(own, manifest, state.standing)
    accepted = Accepted(standing=state.standing, reason=state.reason, manifest=manifest)
    end = arm("deadline", manifest.deadline_s + GRACE_S)
    return accepted, (*reminders, Send((COORDINATOR,), accept), end)


def _misfit(own: Assets, manifest: RunManifest) -> tuple[str, str] | None:
    """Why settings or mathematics do not fit the manifest: (text for all, text for this console).

    It reads no row: labels were checked against their declared kind before anything was sent.
    """
    try:
        plan_run(manifest, max(1, own.ids.people))
    except (RefusedError, SettingsError) as refused:
        return f"the privacy argument refuses these settings: {refused}", ""
    settings = own.data.settings
    if settings.label_column is None:
        return None
    try:
        check_declared(
            family(manifest.loss),
            label_kind=settings.declared_kind,
            has_offset=settings.offset_column is not None,
        )
    except SettingsError as wrong:
        return str(wrong), ""
    return None


_SAME: tuple[type, ...] = ()  # the phase does not change
_FOUND = (Aligning, Leaving, Agreeing)
SHARED_MOVES: Moves = {
    (Starting, "started"): Move(started, (Joining,)),
    (Running, "started"): Move(started, _SAME),
    (Running, "welcome"): Move(welcome, _SAME),
    (Running, "pause"): Move(orders.waited_for, _SAME),
    (Running, "operator:withdraw"): Move(asked_to, (Leaving,)),
    (Running, "withdraw"): Move(peer_left, (Leaving,)),
    (Running, "timer:deadline"): Move(too_long, (Leaving,)),
    (Running, "offence"): Move(wronged, _SAME),
    **{
        (phase, timer): Move(stuck, (phase, Leaving))
        for phase in (Joining, Accepted, Aligning, Agreeing, Aligned, Training)
        for timer in ("timer:offence", "timer:missing")
    },
    (Running, "run_closed"): Move(closed, (Closed,)),
    (Agreeing, "ledger_head"): Move(witness.noticed, (Agreeing, Leaving)),
    (Aligned, "ledger_head"): Move(witness.noticed, (Aligned, Leaving)),
    (Training, "ledger_head"): Move(witness.noticed, (Training, Leaving)),
    (Running, "ledger_witness"): Move(witness.witnessed, _SAME),
    (Joining, "run_offer"): Move(offer, (Leaving, Accepted)),
    (Accepted, "align_start"): Move(alignment.align_start, _FOUND),
    (Accepted, "align_block"): Move(alignment.hold_block, _SAME),
    (Aligning, "align_block"): Move(alignment.align_block, _FOUND),
    (WithRows, "align_block"): Move(alignment.last_blocks, _SAME),
    (Agreeing, "ledger"): Move(reserved, (Agreeing, Aligned, Leaving)),
    (Training, "round_plan"): Move(orders.next_plan, (Training, Leaving)),
    (Aligning, "pause"): Move(orders.say_awaited, _SAME),
    (Agreeing, "pause"): Move(orders.say_awaited, _SAME),
    (Training, "pause"): Move(orders.pause, _SAME),
    (Training, "resume"): Move(orders.resume, (Training, Leaving)),
    (Training, "ledger"): Move(rounds_over, (Training, Leaving)),
    (Training, "ledger_witness"): Move(witnessed, _SAME),
    (Training, "run_closed"): Move(closed_training, (Training, Closed)),
    (Training, "timer:closing"): Move(caught_up, (Training, Closed)),
    (Leaving, "run_closed"): Move(closed_leaving, (Closed,)),
    (Leaving, "timer:closing"): Move(too_late, (Closed,)),
    (Closed, "run_closed"): Move(stay, _SAME),  # the first outcome counts; the model stays
    (Closed, "timer:closing"): Move(stay, _SAME),
    # Messages that were in flight when somebody left or the run ended.
    (Over, "operator:withdraw"): Move(stay, _SAME),
    (Over, "withdraw"): Move(stay, _SAME),
    (Over, "offence"): Move(stay, _SAME),
    (Over, "timer:offence"): Move(stay, _SAME),
    (Over, "timer:missing"): Move(stay, _SAME),
    (Over, "timer:deadline"): Move(stay, _SAME),
    (Over, "run_offer"): Move(stay, _SAME),
    (Over, "align_start"): Move(stay, _SAME),
    (Over, "align_block"): Move(stay, _SAME),
    (Over, "round_plan"): Move(stay, _SAME),
    (Over, "pause"): Move(stay, _SAME),
    (Over, "resume"): Move(stay, _SAME),
    (Over, "ledger"): Move(stay, _SAME),
    (Over, "ledger_head"): Move(witness.remembered, _SAME),
}
