"""What the active and a passive party have in common: joining, the offer, the plan, the end.

It owns the moves before and after the rounds; it knows nothing of what a round computes. Pure: data
and secrets are fixed in `Assets`, everything else is folded from the inputs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import MappingProxyType
from typing import Any, TypeVar

from hdpvfl_mq.errors import PeerError, RefusedError, SettingsError
from hdpvfl_mq.glm.families import family
from hdpvfl_mq.glm.response import check_declared
from hdpvfl_mq.machine import (
    Finish,
    Move,
    Moves,
    OperatorRequest,
    Received,
    Refused,
    Send,
    Started,
    Step,
    stay,
)
from hdpvfl_mq.methods import plan_run
from hdpvfl_mq.privacy.noise import commitment
from hdpvfl_mq.psi import rules_digest
from hdpvfl_mq.wire.codec import model_digest
from parties import alignment, witness
from parties.admission import broken_rule
from parties.assets import Assets
from parties.phases import (
    Accepted,
    Aligned,
    Aligning,
    Closed,
    Joining,
    Phase,
    Running,
    Starting,
    Training,
    Withdrawn,
    WithRows,
)
from parties.rounds import ROUNDS
from schemas.config import RunManifest
from schemas.ids import COORDINATOR
from schemas.messages import (
    Hello,
    Pause,
    Residual,
    Resume,
    RoundPlan,
    RoundReport,
    RunAccept,
    RunClosed,
    RunOffer,
    RunRefuse,
    ScoreShare,
    Welcome,
    Withdraw,
)

P = TypeVar("P", bound=Phase)
# How one side takes in what the other releases.
Take = Callable[[Assets, Training, Received[Any]], Step[Training]]
NEVER = 2**31  # a round that does not come


# -- joining and the offer ---------------------------------------------------------------------


def started(own: Assets, state: Starting | Running, given: Started) -> Step[Running]:
    """Greet the coordinator; a process that starts again says so in the same words."""
    hello = Hello(
        epoch=given.epoch,
        seed_commitment=commitment(own.secret, own.salt),
        toss_commitment=alignment.toss_commitment(own),
        dataset_fingerprint=own.derived(b"fingerprint" + own.data.fingerprint),
        numeric_profile=own.numeric_profile[:500],
        ledger=given.standing.head,
    )
    greeting = (Send((COORDINATOR,), hello),)
    if isinstance(state, Starting):
        return Joining(standing=given.standing), greeting
    return replace(state, standing=given.standing), greeting


def welcome(own: Assets, state: P, given: Received[Welcome]) -> Step[P]:
    """Note whom the coordinator waits for."""
    return replace(state, waiting_for=given.message.waiting_for), ()


def offer(own: Assets, state: Joining, given: Received[RunOffer]) -> Step[Joining | Accepted]:
    """Take part, or say which rule forbids it."""
    manifest = given.message.manifest
    rule = broken_rule(own, manifest, state.standing) or _misfit(own, manifest)
    if rule is not None:
        public, detail = rule
        refusal = Send((COORDINATOR,), RunRefuse(rule=public[:500]))
        return replace(state, reason=detail or public), (refusal,)
    accept = RunAccept(
        manifest_digest=model_digest(manifest),
        id_profile_digest=rules_digest(own.id_rules),
        set_size=len(own.ids.ids),
        columns=own.data.X.shape[1],
        kept_alignment=kept.name if (kept := own.kept_for(manifest)) else None,
    )
    reminders = witness.remind(own, manifest, state.standing)
    accepted = Accepted(standing=state.standing, reason=state.reason, manifest=manifest)
    return accepted, (*reminders, Send((COORDINATOR,), accept))


def _misfit(own: Assets, manifest: RunManifest) -> tuple[str, str] | None:
    """Whether own settings and the mathematics fit the manifest: (public rule, own detail).

    It looks at no row: labels were checked against their declared kind before anything was sent.
    """
    try:
        plan_run(manifest, max(1, len(own.ids.ids)))
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


# -- rounds ------------------------------------------------------------------------------------


def first_plan(
    own: Assets, state: Aligned, given: Received[RoundPlan], *, take: Take
) -> Step[Training]:
    """Rounds may run: begin, and take in what peers sent who heard of it earlier."""
    last = _checked_last(state, given.message, planned=0)
    rounds = ROUNDS[type(state.manifest.method)]
    start = rounds.active_start if own.role == "active" else rounds.passive_start
    training = Training(
        standing=state.standing,
        setup=state.setup,
        session=state.session,
        align_total=state.align_total,
        rounds=start(own, state.setup),
        planned=last,
    )
    after, effects = proceed(own, training)
    for party in sorted(state.early):  # party order: arrival is not information
        after, more = _late(own, after, state.early[party], take)
        effects = (*effects, *more)
    return after, effects


def _late(own: Assets, state: Training, given: Received[Any], take: Take) -> Step[Training]:
    """A message that was put aside; if it is no legal move, that is recorded now."""
    try:
        return take(own, state, given)
    except PeerError as refused:
        return state, (Refused(reason=f"{given.sender}, early: {refused}"[:500]),)


def put_aside(
    own: Assets, state: Aligned, given: Received[ScoreShare] | Received[Residual]
) -> Step[Aligned]:
    """A peer has heard the coordinator's plan before this party: keep one message of each."""
    if given.sender in state.early:
        raise PeerError(f"{given.sender} has sent a message before the first plan already")
    early = MappingProxyType({**state.early, given.sender: given})
    return replace(state, early=early), ()


def next_plan(own: Assets, state: Training, given: Received[RoundPlan]) -> Step[Training]:
    """More rounds may run."""
    last = _checked_last(state, given.message, planned=state.planned)
    return proceed(own, replace(state, planned=last, waiting_for=()))


def _checked_last(state: WithRows, message: RoundPlan, *, planned: int) -> int:
    plan = state.setup.plan
    if message.plan_digest != plan.digest or message.first != planned:
        raise PeerError("the round plan departs from the one this party derived")
    if not message.first < message.last <= plan.rounds:
        raise PeerError("the round plan leaves the schedule")
    return message.last


def proceed(own: Assets, state: Training) -> Step[Training]:
    """Do whatever the current round allows by now."""
    rounds = ROUNDS[type(state.manifest.method)]
    step = rounds.active_proceed if own.role == "active" else rounds.passive_proceed
    return step(own, state)


def pause(own: Assets, state: Training, given: Received[Pause]) -> Step[Training]:
    """The coordinator asks who is there."""
    report = RoundReport(rounds_done=state.round, last=False)
    state = replace(state, waiting_for=given.message.waiting_for)
    return state, (Send((COORDINATOR,), report),)


def resume(own: Assets, state: Training, given: Received[Resume]) -> Step[Training]:
    """Go on without the parties that are named, where the manifest allows that."""
    message = given.message
    if message.absent and state.manifest.absence == "wait":
        raise PeerError("nobody may be left out of this run: its absence policy is to wait")
    away = dict.fromkeys(message.absent, NEVER)
    for party in state.away_until:
        if party not in away:
            away[party] = min(state.away_until[party], message.round)
    state = replace(state, waiting_for=(), away_until=MappingProxyType(away))
    if state.is_done:
        return state, witness.completion(own, state)
    return proceed(own, state)


# -- the end -----------------------------------------------------------------------------------


def closed(own: Assets, state: Running, given: Received[RunClosed]) -> Step[Closed]:
    """The run is over for everybody."""
    message = given.message
    manifest = (
        state.manifest if isinstance(state, Accepted | Aligning | Withdrawn | WithRows) else None
    )
    after = Closed(
        standing=state.standing,
        outcome=message.outcome,
        reason=state.reason or message.reason,  # an own reason names columns and rows
        manifest=manifest,
        trained=state if isinstance(state, Training) else None,
    )
    return after, (Finish(outcome=message.outcome),)


def withdraw(own: Assets, state: P, given: OperatorRequest) -> Step[P]:
    """Leave the run; what is spent stays spent."""
    return state, (Send((COORDINATOR,), Withdraw(reason="operator")),)


_SAME: tuple[type, ...] = ()  # the phase does not change
SHARED_MOVES: Moves = {
    (Starting, "started"): Move(started, (Joining,)),
    (Running, "started"): Move(started, _SAME),
    (Running, "welcome"): Move(welcome, _SAME),
    (Running, "operator:withdraw"): Move(withdraw, _SAME),
    (Running, "run_closed"): Move(closed, (Closed,)),
    (Running, "ledger_head"): Move(witness.noticed, _SAME),
    (Running, "ledger_witness"): Move(witness.witnessed, _SAME),
    (Joining, "run_offer"): Move(offer, (Joining, Accepted)),
    (Accepted, "align_start"): Move(alignment.align_start, (Aligning, Withdrawn, Aligned)),
    (Accepted, "align_block"): Move(alignment.hold_block, _SAME),
    (Aligning, "align_block"): Move(alignment.align_block, (Aligning, Withdrawn, Aligned)),
    (Withdrawn, "align_block"): Move(stay, _SAME),
    (WithRows, "align_block"): Move(alignment.last_blocks, _SAME),
    (Training, "round_plan"): Move(next_plan, _SAME),
    (Training, "pause"): Move(pause, _SAME),
    (Training, "resume"): Move(resume, _SAME),
    (Training, "ledger"): Move(witness.notify, _SAME),
    (Closed, "run_closed"): Move(stay, _SAME),  # the first end counts; what was trained stays
    # What was on its way when the run ended.
    (Closed, "align_block"): Move(stay, _SAME),
    (Closed, "round_plan"): Move(stay, _SAME),
    (Closed, "pause"): Move(stay, _SAME),
    (Closed, "resume"): Move(stay, _SAME),
    (Closed, "ledger"): Move(stay, _SAME),
}
