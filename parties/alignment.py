"""Finding the common rows: entity resolution as moves of a party, and what follows from it.

It owns the moves from "all have accepted" to a block of aligned rows with its noise plan; the
protocol between the parties belongs to hdpvfl_mq/psi, what comes next to agreement.py.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from hdpvfl_mq.errors import (
    CheatingError,
    MembersError,
    PeerError,
    RefusedError,
    SettingsError,
    TermsError,
)
from hdpvfl_mq.machine import Effect, Offence, ReadLedger, Received, Refused, Reserve, Send, Step
from hdpvfl_mq.methods import plan_run
from hdpvfl_mq.methods.run_plan import RunPlan
from hdpvfl_mq.privacy.mechanism import Mechanism
from hdpvfl_mq.privacy.slots import placed
from hdpvfl_mq.psi import (
    Block,
    KeyedWorkspace,
    Outgoing,
    Passes,
    Session,
    commit,
    open_passes,
    open_session,
    order_digest,
    rules_digest,
)
from hdpvfl_mq.psi import Terms as SessionTerms
from hdpvfl_mq.wire.codec import model_digest
from hdpvfl_mq.wire.echoes import residuals_start
from parties.agreement import members_digest, toss_digest
from parties.assets import Assets, ids_digest
from parties.common_rows import in_shared_order, packed_positions
from parties.leaving import leave, wronged
from parties.lowered import is_needlessly_low
from parties.phases import Accepted, Agreeing, Aligning, Leaving, Setup, Terms, WithRows
from schemas.alignment import KeptAlignment
from schemas.config import RunManifest
from schemas.messages import AlignBlock, AlignStart, WithdrawReason
from schemas.tensor import MAX_TENSOR_BYTES, Tensor

RELAYED_SINCE = 2  # version of the protocol: hellos go to the active party, which sends all to all
HELD_MAX = 4  # a peer's blocks before this party has started: only greetings come so early
HELD_BYTES_MAX = 2**16
KEPT_MAX = MAX_TENSOR_BYTES // 8  # common rows of an alignment that is stored for later runs
_ROWS = "the number of common rows is outside the manifest's rows_min..rows_max"
_REASONS: dict[type, WithdrawReason] = {TermsError: "manifest", MembersError: "members"}
Commitments = tuple[bytes, ...]  # one of every party, the active party's first
R = TypeVar("R", bound=WithRows)


@dataclass(frozen=True)
class _Found:
    """The common entities: positions among this party's ids, and the key all parties share."""

    positions: NDArray[np.integer[Any]]
    shared_key: bytes
    toss: bytes


def align_start(
    own: Assets, state: Accepted, given: Received[AlignStart]
) -> Step[Aligning | Leaving | Agreeing]:
    """All have accepted: open the session and greet the others."""
    manifest, message = state.manifest, given.message
    _check_commitments(own, manifest, message.commitments)
    if message.is_kept:
        return _kept(own, state, toss_digest(message))
    terms = SessionTerms(
        method=manifest.alignment.method,
        active=manifest.active_party,
        passives=manifest.passive_parties,
        session_id=_session_id(manifest, message.commitments),
        commitments=message.commitments,
        profile_digest=rules_digest(own.id_rules),
        rows_min=manifest.alignment.rows_min,
        rows_max=manifest.alignment.rows_max,
        members=members_digest(own, manifest) if manifest.wire >= RELAYED_SINCE else b"",
    )
    session = _session(own, terms)
    after: Aligning | Leaving | Agreeing = Aligning(
        standing=state.standing,
        reason=state.reason,
        manifest=manifest,
        toss=toss_digest(message),
        session=session,
        agreements=state.agreements,
    )
    outgoing = _blocks(session.start(own.workspace))
    for waiting in state.held:
        after, more = _late(own, after, waiting)
        outgoing = (*outgoing, *more)
    return after, outgoing


def _session(own: Assets, terms: SessionTerms) -> Session | Passes:
    """One session, or several in sequence if people have several keys."""
    work = own.workspace
    if isinstance(work, KeyedWorkspace):
        return open_passes(terms, own.party, work, len(own.id_rules.key_columns))
    return open_session(terms, own.party, work)


def _late(
    own: Assets, state: Aligning | Leaving | Agreeing, given: Received[AlignBlock]
) -> Step[Aligning | Leaving | Agreeing]:
    """Handle a block that came early; if it is not a legal move, record that now."""
    try:
        if isinstance(state, Aligning):
            return align_block(own, state, given)
        return last_blocks(own, state, given) if isinstance(state, Agreeing) else (state, ())
    except PeerError as refused:
        after, effects = wronged(own, state, Offence(given.sender))
        return after, (Refused(reason=f"{given.sender}, early: {refused}"[:500]), *effects)


def _kept(own: Assets, state: Accepted, toss: bytes) -> Step[Leaving | Agreeing]:
    """All parties keep this alignment: use it, exchange nothing."""
    kept, bounds = own.kept_for(state.manifest), state.manifest.alignment
    if kept is None:
        raise PeerError("told to use a kept alignment, but this party has named none")
    positions = kept.positions.array()
    if not bounds.rows_min <= len(positions) <= bounds.rows_max:
        return leave(own, state, "rows", detail=_ROWS)
    return _found(own, state, _Found(positions, kept.shared_key, toss))


def toss_commitment(own: Assets) -> bytes:
    """The commitment to this party's share of the public seed, sent before it knows any other."""
    return commit(own.workspace.nonce, own.party)


def _check_commitments(own: Assets, manifest: RunManifest, commitments: Commitments) -> None:
    """A party reveals its share only when it knows the commitments of all others."""
    parties = manifest.parties
    if len(commitments) != len(parties):
        raise PeerError("the start of entity resolution lacks a party's commitment")
    if commitments[parties.index(own.party)] != toss_commitment(own):
        raise PeerError("the start of entity resolution names a commitment that is not ours")


def _session_id(manifest: RunManifest, commitments: Commitments) -> bytes:
    """Equal at parties with the same manifest and commitments, which the session's hello checks."""
    return hashlib.sha256(b"align" + model_digest(manifest) + b"".join(commitments)).digest()


def hold_block(own: Assets, state: Accepted, given: Received[AlignBlock]) -> Step[Accepted]:
    """Keep a block of a peer that was told to start before this party was."""
    held = [each for each in state.held if each.sender == given.sender]
    size = len(given.message.tensor.data)
    if len(held) >= HELD_MAX or size > HELD_BYTES_MAX:
        raise PeerError("too many or too large blocks before entity resolution has started")
    return replace(state, held=(*state.held, given)), ()


def align_block(
    own: Assets, state: Aligning, given: Received[AlignBlock]
) -> Step[Aligning | Leaving | Agreeing]:
    """Handle one block of a peer."""
    try:
        session, effects = _received(own, state.session, given)
    except CheatingError as cheated:  # leave: a second try would be a second guess
        reason = _REASONS.get(type(cheated), "proof")
        return leave(own, state, reason, about=given.sender, detail=str(cheated))
    if session.is_withheld:
        after, more = leave(own, state, "rows", detail=_ROWS)
        return after, (*effects, *more)
    if not session.is_found:
        return replace(state, session=session), effects
    found = _Found(session.positions(own.workspace), session.shared_key, state.toss)
    is_low = is_needlessly_low(own, session.nonces)
    agreeing, said = leave(own, state, "version") if is_low else _found(own, state, found)
    if isinstance(agreeing, Agreeing):
        return _let_go(own, agreeing, session), (*effects, *said)
    return agreeing, (*effects, *said)


def last_blocks(own: Assets, state: R, given: Received[AlignBlock]) -> Step[R]:
    """This party knows the common rows, but a peer may still need blocks."""
    if state.session is None:
        raise PeerError("a block of entity resolution, which is over")
    session, effects = _received(own, state.session, given)
    return _let_go(own, state, session), effects


def _let_go(own: Assets, state: R, session: Session | Passes) -> R:
    """Keep the session only until it has sent and received its last block."""
    if session.is_finished:
        own.workspace.forget()
        return replace(state, session=None, align_total=session.progress[1])
    return replace(state, session=session)


def _received(
    own: Assets, session: Session | Passes, given: Received[AlignBlock]
) -> tuple[Session | Passes, tuple[Effect, ...]]:
    sender, message = given.sender, given.message
    place = (message.stage, message.index, message.last)
    block = Block(sender, *place, bytes(message.tensor.data), message.meta)
    after, outgoing = session.receive(own.workspace, block)
    return after, _blocks(outgoing)


def _found(own: Assets, state: Accepted | Aligning, found: _Found) -> Step[Leaving | Agreeing]:
    """Order the common rows, derive the plan, reserve its cost and read the ledger's answer."""
    manifest = state.manifest
    try:
        plan = plan_run(manifest, len(found.positions))
    except (RefusedError, SettingsError) as refused:  # fits all own rows, not the common ones
        return leave(own, state, "rows", detail=str(refused))
    spent = plan.spent_by(own.role)
    has_slots = placed(spent.pure, state.standing.slots_free) is not None
    if spent.exact == 0 and (spent.mu2_units > state.standing.mu2_units_free or not has_slots):
        text = "the run would exceed the lifetime cap of the policy"
        return leave(own, state, "budget", detail=text)
    ids, _ = in_shared_order(own, manifest, found.positions)
    terms = Terms(
        manifest=model_digest(manifest),
        members=members_digest(own, manifest),
        toss=found.toss,
        # Keyed by a secret the broker does not know, or it could test guessed sets of ids.
        order=order_digest(ids, found.shared_key),
        plan=plan.digest,
    )
    after = Agreeing(
        standing=state.standing,
        setup=make_setup(own, plan, found.positions, _to_keep(own, manifest, found)),
        terms=terms,
        residuals=residuals_start(found.shared_key),
        agreements=state.agreements,
    )
    reserve = Reserve(
        mu2_units=spent.mu2_units,
        tau_units=spent.tau_units,
        exact=spent.exact > 0,
        pure_units=spent.pure,
    )
    return after, (reserve, ReadLedger())


def make_setup(
    own: Assets, plan: RunPlan, positions: NDArray[np.integer[Any]], kept: KeptAlignment | None
) -> Setup:
    """Everything that follows from the plan and the common ids; it sends nothing."""
    mechanism = Mechanism(own.party, own.run, own.secret, plan.releases_of(own.role))
    return Setup(plan, mechanism, packed_positions(own, positions), kept)


def setup_again(own: Assets, manifest: RunManifest, kept: KeptAlignment) -> Setup:
    """The setup from a kept alignment, for a process that restarts."""
    positions = kept.positions.array()
    return make_setup(own, plan_run(manifest, len(positions)), positions, kept)


def _to_keep(own: Assets, manifest: RunManifest, found: _Found) -> KeptAlignment | None:
    """The alignment that later runs on the same ids may use; None if it is too large to keep."""
    if found.positions.size > KEPT_MAX:
        return None
    return KeptAlignment(
        ids_digest=ids_digest(own.ids),
        parties=tuple(sorted(manifest.parties)),
        id_profile_digest=rules_digest(own.id_rules),
        shared_key=found.shared_key,
        positions=Tensor.smallest(np.asarray(found.positions, dtype=np.int64)),
    )


def _blocks(outgoing: tuple[Outgoing, ...]) -> tuple[Effect, ...]:
    return tuple(Send(each.to, _block_message(each)) for each in outgoing)


def _block_message(outgoing: Outgoing) -> AlignBlock:
    return AlignBlock(
        stage=outgoing.stage,
        index=outgoing.index,
        last=outgoing.last,
        meta=outgoing.meta,
        tensor=Tensor.of(np.frombuffer(outgoing.payload, dtype=np.uint8)),
    )
