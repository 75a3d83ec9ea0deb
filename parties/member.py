"""What the active and a passive party have in common: joining, the offer, the common rows, the end.

It owns the phases before and after the rounds; it knows nothing of what a round computes. Pure:
data and secrets are fixed when a party is made, everything else is folded from its inputs.

joining -> accepted -> aligning -> aligned -> training -> closed
"""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from hdpvfl_mq.arrays.unreleased import FloatVector
from hdpvfl_mq.errors import DataError, PeerError, RefusedError, SettingsError
from hdpvfl_mq.glm.families import family
from hdpvfl_mq.glm.response import check_sides
from hdpvfl_mq.machine import (
    Finish,
    Input,
    Moves,
    Ordered,
    ReadLedger,
    Received,
    Send,
    Started,
    Step,
    dispatch,
    stay,
)
from hdpvfl_mq.plan.run_plan import plan_run
from hdpvfl_mq.privacy.noise import commitment
from hdpvfl_mq.wire.codec import model_digest
from parties import alignment, snapshot, witness
from parties.admission import broken_rule
from parties.assets import Assets, MemberState, Training, id_profile
from schemas.config import RunManifest
from schemas.ids import COORDINATOR
from schemas.messages import (
    Hello,
    Pause,
    Resume,
    RoundPlan,
    RoundReport,
    RunAccept,
    RunClosed,
    RunOffer,
    RunRefuse,
    Withdraw,
)

S = TypeVar("S", bound=MemberState)
NEVER = 2**31  # a round that does not come


class Member:
    """The part of a party's role that does not depend on its side."""

    moves: ClassVar[Moves]

    def __init__(self, possession: Assets) -> None:
        self.own = possession
        self.name = possession.party

    def initial(self) -> Any:
        """The state before any input."""
        raise NotImplementedError

    def begin_training(self, state: Any) -> Step[Any]:
        """Rounds may run, or more of them than before."""
        raise NotImplementedError

    def prepare_training(self, state: Any, order: NDArray[np.int64]) -> Any:
        """Whatever a side adds to `Training`."""
        return state

    def step(self, state: Any, given: Input) -> Step[Any]:
        """One move of the side's table."""
        return dispatch(self.moves, self, state, given)

    def progress(self, state: MemberState) -> dict[str, Any]:
        """What this party's own operator may see."""
        plan = state.training.plan if state.training else None
        return {
            "phase": state.phase,
            "round": state.round,
            "rounds": plan.rounds if plan else 0,
            "rows_common": plan.rows if plan else 0,
            "align": state.session.progress if state.session else (state.align_total,) * 2,
            "align_kept": bool(state.alignment and not state.session and not state.align_total),
            "waiting_for": list(state.waiting_for),
            "outcome": state.outcome,
            "reason": state.reason,
        }

    def freeze(self, state: MemberState) -> bytes | None:
        """The state as bytes, while it trains."""
        return snapshot.freeze(self, state)

    def thaw(self, frozen: bytes) -> Any | None:
        """The state again, with the same rows, secret and alignment."""
        return snapshot.thaw(self, frozen)

    # -- joining and the offer ----------------------------------------------------------------

    def started(self, state: S, given: Started) -> Step[S]:
        own, standing = self.own, given.standing
        hello = Hello(
            epoch=given.epoch,
            seed_commitment=commitment(own.secret, own.salt),
            dataset_fingerprint=own.derived(b"fingerprint" + own.data.fingerprint),
            numeric_profile=own.numeric_profile[:500],
            ledger=standing.head,
        )
        return replace(state, standing=standing), (Send((COORDINATOR,), hello),)

    def welcome(self, state: S, given: Received) -> Step[S]:
        return replace(state, waiting_for=given.message.waiting_for), ()  # type: ignore[union-attr]

    def offer(self, state: S, given: Received) -> Step[S]:
        message: RunOffer = given.message  # type: ignore[assignment]
        manifest = message.manifest
        assert state.standing is not None  # a process starts before it hears
        rule = broken_rule(self.own, manifest, state.standing) or self._misfit(manifest)
        if rule is not None:
            return self._refuse(state, *rule)
        accept = RunAccept(
            manifest_digest=model_digest(manifest),
            id_profile_digest=id_profile(self.own.id_rules).digest(),
            set_size=len(self.own.ids.ids),
            columns=self.own.data.X.shape[1],
            kept_alignment=kept.name if (kept := self.own.kept_for(manifest)) else None,
        )
        state = replace(state, phase="accepted", manifest=manifest, waiting_for=())
        return state, (*witness.remind(self, state), Send((COORDINATOR,), accept))

    def _misfit(self, manifest: RunManifest) -> tuple[str, str] | None:
        """Whether own data and the mathematics fit the manifest: (public rule, own detail)."""
        try:
            plan_run(manifest, max(1, len(self.own.ids.ids)))
        except (RefusedError, SettingsError) as refused:
            return f"the privacy argument refuses these settings: {refused}", ""
        data, settings = self.own.data, self.own.data.settings
        if data.y is None:
            return None
        try:
            check_sides(family(manifest.loss), data.y, weights=data.weights, offset=data.offset)
        except (DataError, SettingsError) as wrong:
            columns = (settings.label_column, settings.weight_column, settings.offset_column)
            names = ", ".join(f"column {name!r}" for name in columns if name)
            return "its labels do not fit the loss (its own console says more)", f"{names}: {wrong}"
        return None

    def _refuse(self, state: S, rule: str, detail: str) -> Step[S]:
        state = replace(state, reason=detail or rule)
        return state, (Send((COORDINATOR,), RunRefuse(rule=rule[:500])),)

    # -- rounds -------------------------------------------------------------------------------

    def round_plan(self, state: S, given: Received) -> Step[S]:
        message: RoundPlan = given.message  # type: ignore[assignment]
        plan = self.training(state).plan
        if message.plan_digest != plan.digest or message.first != state.planned:
            raise PeerError("the round plan departs from the one this party derived")
        if not message.first < message.last <= plan.rounds:
            raise PeerError("the round plan leaves the schedule")
        state = replace(state, phase="training", planned=message.last, waiting_for=())
        return self.begin_training(state)

    def training(self, state: MemberState) -> Training:
        """The fixed part; there is one from `aligned` on."""
        assert state.training is not None
        return state.training

    def finished_round(
        self, state: S, w: FloatVector | None, residual: FloatVector | None = None
    ) -> Step[S]:
        """Count a round, average its iterate, report when it is due.

        w is None where no update was made; `residual` is what a stop rule may look at.
        """
        plan = self.training(state).plan
        done = state.round + 1
        w = state.w if w is None else w
        averaged = state.round >= plan.first_averaged
        state = replace(
            state,
            round=done,
            w=w,
            w_sum=state.w_sum + w if averaged else state.w_sum,
            w_count=state.w_count + int(averaged),
            energies=plan.energies_after(state.round, state.energies, residual),
        )
        state = replace(state, is_done=plan.is_over(done, state.energies))
        if state.is_done:
            return state, (ReadLedger(),)  # the last report follows when peers have co-signed
        every = max(1, plan.manifest.rounds_ahead // 4)
        if done % every:
            return state, ()
        return state, (Send((COORDINATOR,), RoundReport(rounds_done=done, last=False)),)

    def pause(self, state: S, given: Received) -> Step[S]:
        message: Pause = given.message  # type: ignore[assignment]
        state = replace(state, waiting_for=message.waiting_for)
        report = RoundReport(rounds_done=state.round, last=False)
        return state, (Send((COORDINATOR,), report),)

    def resume(self, state: S, given: Received) -> Step[S]:
        message: Resume = given.message  # type: ignore[assignment]
        if message.absent and self.training(state).plan.manifest.absence == "wait":
            raise PeerError("nobody may be left out of this run: its absence policy is to wait")
        away = dict.fromkeys(message.absent, NEVER)
        for party in state.away_until:
            if party not in away:
                away[party] = min(state.away_until[party], message.round)
        state = replace(state, waiting_for=(), away_until=MappingProxyType(away))
        if state.is_done:
            return state, witness.completion(self, state)
        return self.begin_training(state)

    # -- the end ------------------------------------------------------------------------------

    def closed(self, state: S, given: Received) -> Step[S]:
        message: RunClosed = given.message  # type: ignore[assignment]
        state = replace(
            state,
            phase="closed",
            outcome=message.outcome,
            reason=state.reason or message.reason,  # an own reason names columns and rows
            waiting_for=(),
        )
        return state, (Finish(message.outcome),)

    def withdraw(self, state: S, given: Ordered) -> Step[S]:
        return state, (Send((COORDINATOR,), Withdraw(reason="operator")),)

    def final_weights(self, state: MemberState) -> FloatVector:
        """The model this party keeps: the average of the iterates the manifest names."""
        return state.w if state.w_count == 0 else state.w_sum / state.w_count


_M = Member
SHARED_MOVES: Moves = {
    ("*", "started"): _M.started,
    ("*", "welcome"): _M.welcome,
    ("*", "order:withdraw"): _M.withdraw,
    ("*", "run_closed"): _M.closed,
    ("*", "ledger"): witness.notify,
    ("*", "ledger_head"): witness.noticed,
    ("*", "ledger_witness"): witness.witnessed,
    ("joining", "run_offer"): _M.offer,
    ("accepted", "align_start"): alignment.align_start,
    ("accepted", "align_block"): alignment.hold_block,
    ("aligning", "align_block"): alignment.align_block,
    ("aligned", "align_block"): alignment.align_block,
    ("aligned", "round_plan"): _M.round_plan,
    ("training", "align_block"): alignment.align_block,
    ("training", "round_plan"): _M.round_plan,
    ("training", "pause"): _M.pause,
    ("training", "resume"): _M.resume,
    ("closed", "align_block"): stay,
    ("closed", "round_plan"): stay,
    ("closed", "pause"): stay,
    ("closed", "resume"): stay,
}
