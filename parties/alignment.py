"""Finding the common rows: entity resolution as moves of a party, and what follows from it.

It owns the way from "all have accepted" to a block of aligned rows with its noise plan; the
protocol between the parties belongs to hdpvfl_mq/psi, the rounds to the roles.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hdpvfl_mq.arrays.chunked import gather
from hdpvfl_mq.errors import PeerError, RefusedError, SettingsError
from hdpvfl_mq.glm.block import ColumnBlock
from hdpvfl_mq.machine import Effect, Received, Reserve, Send, Step
from hdpvfl_mq.plan.run_plan import RunPlan, plan_run
from hdpvfl_mq.privacy.mechanism import Mechanism
from hdpvfl_mq.privacy.noise import commitment
from hdpvfl_mq.psi import Outgoing, PackedIds, Terms, open_session, order_digest, row_order
from hdpvfl_mq.wire.codec import model_digest
from parties.assets import Assets, Training, id_profile
from schemas.alignment import KeptAlignment
from schemas.config import RunManifest
from schemas.ids import COORDINATOR
from schemas.messages import AlignBlock, Aligned, AlignStart, Withdraw
from schemas.tensor import MAX_TENSOR_BYTES, Tensor

if TYPE_CHECKING:
    from parties.member import Member

HELD_MAX = 1024  # blocks that may come before this party has started
KEPT_MAX = MAX_TENSOR_BYTES // 8  # common rows of an alignment that is kept


def align_start(party: Member, state: Any, given: Received) -> Step[Any]:
    """All have accepted: open the session and greet the others."""
    message: AlignStart = given.message  # type: ignore[assignment]
    manifest = state.manifest
    assert manifest is not None
    if message.method == "kept":
        return _kept(party, replace(state, held=()))
    terms = Terms(
        method=message.method,
        active=manifest.active_party,
        passives=manifest.passive_parties,
        public_seed=_joint_seed(party, manifest, message),
        profile_digest=id_profile(party.own.id_rules).digest(),
        rows_min=manifest.alignment.rows_min,
        rows_max=manifest.alignment.rows_max,
    )
    session = open_session(
        terms,
        party.name,
        party.own.ids.ids,
        secret=party.own.derived(b"entity resolution"),
        room=party.own.room,
    )
    held, state = state.held, replace(state, phase="aligning", session=session, held=())
    state, effects = _after(party, state, session.start())
    for waiting in held:
        state, more = align_block(party, state, waiting)
        effects = (*effects, *more)
    return state, effects


def _kept(party: Member, state: Any) -> Step[Any]:
    """All have named the alignment that this party keeps too: use it, exchange nothing."""
    kept, bounds = party.own.kept_for(state.manifest), state.manifest.alignment
    if kept is None:
        raise PeerError("told to use a kept alignment, but this party has named none")
    positions = kept.positions.array()
    if not bounds.rows_min <= len(positions) <= bounds.rows_max:
        return _withdrawn(state)
    return _aligned(party, state, positions, kept.shared_key)


def _joint_seed(party: Member, manifest: RunManifest, message: AlignStart) -> bytes:
    """A public seed nobody chose alone: every party's commitment to its secret is in it."""
    parties = (manifest.active_party, *manifest.passive_parties)
    own = commitment(party.own.secret, party.own.salt)
    if len(message.commitments) != len(parties):
        raise PeerError("the start of entity resolution lacks a party's commitment")
    if message.commitments[parties.index(party.name)] != own:
        raise PeerError("the start of entity resolution names another commitment than ours")
    return hashlib.sha256(
        b"align" + model_digest(manifest) + b"".join(message.commitments)
    ).digest()


def hold_block(party: Member, state: Any, given: Received) -> Step[Any]:
    """A peer was told to start before this party was."""
    if len(state.held) >= HELD_MAX:
        raise PeerError("too many blocks before entity resolution has started")
    return replace(state, held=(*state.held, given)), ()


def align_block(party: Member, state: Any, given: Received) -> Step[Any]:
    """One block of a peer."""
    message: AlignBlock = given.message  # type: ignore[assignment]
    if state.session is None:
        raise PeerError("a block of entity resolution, which is over")
    outgoing = state.session.receive(
        given.sender,
        message.stage,
        message.index,
        message.last,
        message.tensor.data,
        message.meta,
    )
    return _after(party, state, outgoing)


def _after(party: Member, state: Any, outgoing: tuple[Outgoing, ...]) -> Step[Any]:
    effects: tuple[Effect, ...] = tuple(Send(o.to, _block_message(o)) for o in outgoing)
    session = state.session
    assert session is not None
    if session.is_finished:  # no block follows: let go of its memory
        state = replace(state, session=None, align_total=session.progress[1])
    if state.phase != "aligning" or (session.result is None and not session.withheld):
        return state, effects
    if session.withheld:
        state, more = _withdrawn(state)
    else:
        assert session.result is not None
        state, more = _aligned(party, state, session.result, session.shared_key)
    return state, (*effects, *more)


def _withdrawn(state: Any) -> Step[Any]:
    reason = "the number of common rows is outside the manifest's rows_min..rows_max"
    return replace(state, reason=reason), (Send((COORDINATOR,), Withdraw(reason="rows")),)


def _aligned(
    party: Member, state: Any, common: NDArray[np.integer[Any]], shared_key: bytes
) -> Step[Any]:
    """Order the common rows, derive the plan, reserve its cost, tell the coordinator."""
    manifest = state.manifest
    assert manifest is not None
    ids, rows = _ordered(party.own, manifest, common)
    try:
        plan = plan_run(manifest, len(rows))
    except (RefusedError, SettingsError) as refused:  # held for all own rows, not for the common
        state = replace(state, reason=str(refused))
        return state, (Send((COORDINATOR,), Withdraw(reason="rows")),)
    spent = plan.noise_of(party.own.role).spent
    if spent.exact == 0 and spent.mu2_units > state.standing.mu2_units_free:
        state = replace(state, reason="the run would exceed the lifetime cap of the policy")
        return state, (Send((COORDINATOR,), Withdraw(reason="budget")),)
    state = with_training(party, state, plan, rows)
    model = party.own.model
    start = state.training.start_weights if model is None else model.weights
    state = replace(
        state,
        phase="aligned",
        w=start,
        w_sum=np.zeros_like(start),
        alignment=_to_keep(party, manifest, common, shared_key),
    )
    aligned = Aligned(
        rows=len(rows),
        rounds=plan.rounds,
        # Keyed by what the broker does not know, else it could test guessed sets of ids.
        order_digest=order_digest(ids, shared_key),
        plan_digest=plan.digest,
    )
    reserve = Reserve(spent.mu2_units, spent.tau_units, spent.exact > 0)
    return state, (reserve, Send((COORDINATOR,), aligned))


def _ordered(
    own: Assets, manifest: RunManifest, common: NDArray[np.integer[Any]]
) -> tuple[PackedIds, NDArray[np.int64]]:
    """The common ids in the order all parties share, and the own rows that order asks for."""
    key = hashlib.sha256(b"order" + manifest.seed.to_bytes(8, "big")).digest()
    order = row_order(own.ids.ids.chosen(common, own.room), key, own.room)
    positions = gather(common, order, own.room)
    return own.ids.ids.chosen(positions, own.room), gather(own.ids.rows, positions, own.room)


def with_training(party: Member, state: Any, plan: RunPlan, rows: NDArray[np.int64]) -> Any:
    """Everything that follows from the plan and the common rows, without a word to anybody."""
    own, manifest = party.own, plan.manifest
    mechanism = Mechanism(party.name, own.run, own.secret, plan.noise_of(own.role))
    intercept = own.role == "active" and manifest.active.intercept
    scaled = manifest.guarantee != "none" or manifest.scale_rows
    block = ColumnBlock.align(own.data.X, rows, intercept=intercept, scaled=scaled, room=own.room)
    state = replace(state, training=Training(plan, block, mechanism))
    return party.prepare_training(state, rows)


def retrained(party: Member, state: Any, kept: KeptAlignment) -> Any:
    """The same again from an alignment that was kept: for a process that was started again."""
    manifest = state.manifest
    _, rows = _ordered(party.own, manifest, kept.positions.array())
    return with_training(party, state, plan_run(manifest, len(rows)), rows)


def _to_keep(
    party: Member, manifest: RunManifest, common: NDArray[np.integer[Any]], shared_key: bytes
) -> KeptAlignment | None:
    """What later runs on the same rows may use again; nothing if it is too large to keep."""
    if common.size > KEPT_MAX:
        return None
    return KeptAlignment(
        fingerprint=party.own.data.fingerprint,
        parties=tuple(sorted((manifest.active_party, *manifest.passive_parties))),
        id_profile_digest=id_profile(party.own.id_rules).digest(),
        shared_key=shared_key,
        positions=Tensor.smallest(np.asarray(common, dtype=np.int64)),
    )


def _block_message(outgoing: Outgoing) -> AlignBlock:
    return AlignBlock(
        stage=outgoing.stage,
        index=outgoing.index,
        last=outgoing.last,
        meta=outgoing.meta,
        tensor=Tensor.of(np.frombuffer(outgoing.payload, dtype=np.uint8)),
    )
