"""What the active and a passive party have in common: joining, the offer, the common rows, the end.

It owns the phases before and after the rounds; it knows nothing of what a round computes. Pure:
data and secrets are fixed when a party is made, everything else is folded from its inputs.

joining -> accepted -> aligning -> aligned -> training -> closed
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from hdpvfl_mq.data.preprocess import PreparedData
from hdpvfl_mq.errors import DataError, PeerError, RefusedError, SettingsError
from hdpvfl_mq.glm.block import ColumnBlock
from hdpvfl_mq.glm.families import family
from hdpvfl_mq.machine import (
    Effect,
    Finish,
    Input,
    Moves,
    Ordered,
    Received,
    Reserve,
    Send,
    Standing,
    Started,
    Step,
    dispatch,
    stay,
)
from hdpvfl_mq.privacy.mechanism import Mechanism
from hdpvfl_mq.privacy.noise import commitment
from hdpvfl_mq.psi import (
    IdProfile,
    NormalisedIds,
    Outgoing,
    Session,
    Terms,
    open_session,
    order_digest,
    row_order,
)
from hdpvfl_mq.training import TrainingPlan, plan_training
from hdpvfl_mq.unreleased import FloatVector
from hdpvfl_mq.wire.codec import model_digest
from parties.admission import broken_rule
from schemas.config import AlignmentSpec, PartyPolicy, RunManifest
from schemas.ids import COORDINATOR, PartyId, RunId
from schemas.messages import (
    AlignBlock,
    Aligned,
    AlignStart,
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
from schemas.privacy import Release
from schemas.tensor import Tensor

HELD_MAX = 1024  # blocks of entity resolution that may come before this party has started


@dataclass(frozen=True)
class Possession:
    """What a party brings into a run and never gives away."""

    party: PartyId
    role: Literal["active", "passive"]
    run: RunId
    policy: PartyPolicy
    data: PreparedData = field(repr=False)
    ids: NormalisedIds = field(repr=False)
    id_profile: IdProfile
    secret: bytes = field(repr=False)  # 32 bytes for this run only
    salt: bytes = field(repr=False)
    numeric_profile: str

    def derived(self, purpose: bytes) -> bytes:
        """A secret of its own for another purpose than noise."""
        return hashlib.blake2b(purpose, key=self.secret, digest_size=32).digest()


@dataclass(frozen=True)
class Training:
    """Everything that is fixed once the common rows are known."""

    plan: TrainingPlan
    block: ColumnBlock
    mechanism: Mechanism


@dataclass(frozen=True, kw_only=True)
class MemberState:
    """What the journal says so far; arrays in it are never written to."""

    phase: str = "joining"
    standing: Standing = field(default_factory=Standing)
    waiting_for: tuple[PartyId, ...] = ()
    manifest: RunManifest | None = None
    session: Session | None = field(default=None, repr=False)
    held: tuple[Received, ...] = field(default=(), repr=False)
    align_sent: int = 0
    training: Training | None = field(default=None, repr=False)
    planned: int = 0
    round: int = 0
    last_released: int = -1
    transcript: bytes = b""
    absent: frozenset[PartyId] = frozenset()
    readmitted_at: int = 0
    w: FloatVector = field(default_factory=lambda: np.zeros(0), repr=False)
    w_sum: FloatVector = field(default_factory=lambda: np.zeros(0), repr=False)
    w_count: int = 0
    outcome: str = ""
    reason: str = ""


S = TypeVar("S", bound=MemberState)


def id_profile(spec: AlignmentSpec) -> IdProfile:
    """The manifest's id rules in the words of entity resolution."""
    return IdProfile(
        kind=spec.id_kind,
        columns=spec.id_columns,
        casefold=spec.casefold,
        duplicates=spec.duplicates,
        empties=spec.empties,
    )


def next_transcript(transcript: bytes, release: Release) -> bytes:
    """Hash of all that was released so far, in the order of the protocol, not of arrival."""
    payload = hashlib.sha256(release.tensor.data).digest()
    return hashlib.sha256(transcript + release.release_id.encode() + b"\x00" + payload).digest()


class Member:
    """The part of a party's role that does not depend on its side."""

    moves: ClassVar[Moves]

    def __init__(self, possession: Possession) -> None:
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
            "align": state.session.progress if state.session else (0, 0),
            "waiting_for": list(state.waiting_for),
            "outcome": state.outcome,
            "reason": state.reason,
        }

    # -- joining and the offer ----------------------------------------------------------------

    def started(self, state: S, given: Started) -> Step[S]:
        own, standing = self.own, given.standing
        hello = Hello(
            epoch=given.epoch,
            seed_commitment=commitment(own.secret, own.salt),
            dataset_fingerprint=own.derived(b"fingerprint" + own.data.fingerprint),
            numeric_profile=own.numeric_profile[:500],
            ledger_index=standing.index,
            ledger_digest=standing.digest,
        )
        return replace(state, standing=standing), (Send((COORDINATOR,), hello),)

    def welcome(self, state: S, given: Received) -> Step[S]:
        return replace(state, waiting_for=given.message.waiting_for), ()  # type: ignore[union-attr]

    def offer(self, state: S, given: Received) -> Step[S]:
        message: RunOffer = given.message  # type: ignore[assignment]
        manifest = message.manifest
        rule = broken_rule(self.own, manifest, state.standing) or self._misfit(manifest)
        if rule is not None:
            return self._refuse(state, *rule)
        accept = RunAccept(
            manifest_digest=model_digest(manifest),
            id_profile_digest=self.own.id_profile.digest(),
            set_size=len(self.own.ids.ids),
            columns=self.own.data.X.shape[1],
        )
        state = replace(state, phase="accepted", manifest=manifest, waiting_for=())
        return state, (Send((COORDINATOR,), accept),)

    def _misfit(self, manifest: RunManifest) -> tuple[str, str] | None:
        """Whether own data and the mathematics fit the manifest: (public rule, own detail)."""
        try:
            plan_training(manifest, max(1, len(self.own.ids.ids)))
        except (RefusedError, SettingsError) as refused:
            return f"the privacy argument refuses these settings: {refused}", ""
        if self.own.data.y is not None:
            try:
                family(manifest.loss).check_labels(self.own.data.y)
            except DataError as wrong:
                return "its labels do not fit the loss (its own console says more)", str(wrong)
        return None

    def _refuse(self, state: S, rule: str, detail: str) -> Step[S]:
        state = replace(state, reason=detail or rule)
        return state, (Send((COORDINATOR,), RunRefuse(rule=rule[:500])),)

    # -- common rows --------------------------------------------------------------------------

    def align_start(self, state: S, given: Received) -> Step[S]:
        message: AlignStart = given.message  # type: ignore[assignment]
        manifest = state.manifest
        assert manifest is not None
        terms = Terms(
            method=message.method,
            active=manifest.active_party,
            passives=manifest.passive_parties,
            public_seed=hashlib.sha256(b"align" + model_digest(manifest)).digest(),
            profile_digest=self.own.id_profile.digest(),
            rows_min=manifest.alignment.rows_min,
            rows_max=manifest.alignment.rows_max,
        )
        session = open_session(
            terms, self.name, self.own.ids.ids, secret=self.own.derived(b"entity resolution")
        )
        held, state = state.held, replace(state, phase="aligning", session=session, held=())
        state, effects = self._after_align(state, session.start())
        for waiting in held:
            state, more = self.align_block(state, waiting)
            effects = (*effects, *more)
        return state, effects

    def hold_block(self, state: S, given: Received) -> Step[S]:
        if len(state.held) >= HELD_MAX:
            raise PeerError("too many blocks before entity resolution has started")
        return replace(state, held=(*state.held, given)), ()

    def align_block(self, state: S, given: Received) -> Step[S]:
        message: AlignBlock = given.message  # type: ignore[assignment]
        assert state.session is not None
        outgoing = state.session.receive(
            given.sender,
            message.stage,
            message.index,
            message.last,
            message.tensor.data,
            message.meta,
        )
        return self._after_align(state, outgoing)

    def _after_align(self, state: S, outgoing: tuple[Outgoing, ...]) -> Step[S]:
        effects: tuple[Effect, ...] = tuple(Send(o.to, _block_message(o)) for o in outgoing)
        session = state.session
        assert session is not None
        if state.phase != "aligning" or (session.result is None and not session.withheld):
            return state, effects
        if session.withheld:
            state = replace(state, reason="fewer common rows than the manifest's rows_min")
            return state, (*effects, Send((COORDINATOR,), Withdraw(reason="rows")))
        assert session.result is not None
        state, more = self._aligned(state, session.result)
        return state, (*effects, *more)

    def _aligned(self, state: S, common: NDArray[np.intp]) -> Step[S]:
        manifest = state.manifest
        assert manifest is not None
        key = hashlib.sha256(b"order" + manifest.seed.to_bytes(8, "big")).digest()
        ids = [self.own.ids.ids[position] for position in common]
        order = row_order(ids, key)
        rows = self.own.ids.rows[common[order]]
        plan = plan_training(manifest, len(rows))
        spent = plan_of(plan, self.own.role).spent
        if spent.exact == 0 and spent.mu2_units > state.standing.mu2_units_free:
            state = replace(state, reason="the run would exceed the lifetime cap of the policy")
            return state, (Send((COORDINATOR,), Withdraw(reason="budget")),)
        mechanism = Mechanism(
            self.name, self.own.run, self.own.secret, plan_of(plan, self.own.role)
        )
        intercept = self.own.role == "active" and manifest.active.intercept
        scaled = manifest.guarantee != "none" or manifest.scale_rows
        block = ColumnBlock.align(self.own.data.X, rows, intercept=intercept, scaled=scaled)
        start = block.start_weights(plan.family.start_theta if intercept else 0.0)
        state = replace(
            state,
            phase="aligned",
            training=Training(plan, block, mechanism),
            w=start,
            w_sum=np.zeros_like(start),
        )
        state = self.prepare_training(state, rows)
        aligned = Aligned(
            rows=len(rows),
            rounds=plan.rounds,
            order_digest=order_digest((ids[i] for i in order), key),
            plan_digest=plan.digest,
        )
        reserve = Reserve(spent.mu2_units, spent.tau_units, spent.exact > 0)
        return state, (reserve, Send((COORDINATOR,), aligned))

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

    def finished_round(self, state: S, w: FloatVector | None) -> Step[S]:
        """Count a round, average its iterate, report when it is due; None: no update was made."""
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
        )
        every = max(1, plan.manifest.rounds_ahead // 4)
        if done % every and done != plan.rounds:
            return state, ()
        return state, (Send((COORDINATOR,), RoundReport(rounds_done=done)),)

    def pause(self, state: S, given: Received) -> Step[S]:
        message: Pause = given.message  # type: ignore[assignment]
        state = replace(state, waiting_for=message.waiting_for)
        return state, (Send((COORDINATOR,), RoundReport(rounds_done=state.round)),)

    def resume(self, state: S, given: Received) -> Step[S]:
        message: Resume = given.message  # type: ignore[assignment]
        back = state.absent - set(message.absent)
        state = replace(
            state,
            waiting_for=(),
            absent=frozenset(message.absent),
            readmitted_at=message.round if back else state.readmitted_at,
        )
        return self.begin_training(state)

    # -- the end ------------------------------------------------------------------------------

    def closed(self, state: S, given: Received) -> Step[S]:
        message: RunClosed = given.message  # type: ignore[assignment]
        state = replace(
            state,
            phase="closed",
            outcome=message.outcome,
            reason=message.reason or state.reason,
            waiting_for=(),
        )
        return state, (Finish(message.outcome),)

    def withdraw(self, state: S, given: Ordered) -> Step[S]:
        return state, (Send((COORDINATOR,), Withdraw(reason="operator")),)

    def final_weights(self, state: MemberState) -> FloatVector:
        """The model this party keeps: the average of the iterates the manifest names."""
        return state.w if state.w_count == 0 else state.w_sum / state.w_count


def plan_of(plan: TrainingPlan, role: str) -> Any:
    """The noise plan of a side."""
    return plan.active_noise if role == "active" else plan.passive_noise


def _block_message(outgoing: Outgoing) -> AlignBlock:
    return AlignBlock(
        stage=outgoing.stage,
        index=outgoing.index,
        last=outgoing.last,
        meta=outgoing.meta,
        tensor=Tensor.of(np.frombuffer(outgoing.payload, dtype=np.uint8)),
    )


_M = Member
SHARED_MOVES: Moves = {
    ("*", "started"): _M.started,
    ("*", "welcome"): _M.welcome,
    ("*", "order:withdraw"): _M.withdraw,
    ("*", "run_closed"): _M.closed,
    ("joining", "run_offer"): _M.offer,
    ("accepted", "align_start"): _M.align_start,
    ("accepted", "align_block"): _M.hold_block,
    ("aligning", "align_block"): _M.align_block,
    ("aligned", "align_block"): _M.align_block,
    ("aligned", "round_plan"): _M.round_plan,
    ("training", "align_block"): _M.align_block,
    ("training", "round_plan"): _M.round_plan,
    ("training", "pause"): _M.pause,
    ("training", "resume"): _M.resume,
    ("closed", "align_block"): stay,
    ("closed", "round_plan"): stay,
    ("closed", "pause"): stay,
    ("closed", "resume"): stay,
}
