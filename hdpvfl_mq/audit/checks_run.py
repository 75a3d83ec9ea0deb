"""Checks 6 to 8: are these messages allowed, do the rounds follow the plan, is no row used twice?

It owns the checks that read messages but no price; the price of a round is in checks_privacy.py.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hdpvfl_mq.audit import checks_echo, checks_scoring
from hdpvfl_mq.audit.checks_chain import CheckFailed
from hdpvfl_mq.audit.evidence import Envelope, Evidence, Place, Transcript
from hdpvfl_mq.methods.run_plan import RunPlan
from hdpvfl_mq.privacy.mechanism import SEAL_WORDS
from hdpvfl_mq.wire.codec import UNREADABLE, model_digest
from schemas.config import RunManifest
from schemas.federation import FederationMessage
from schemas.ids import COORDINATOR, PartyId
from schemas.messages import (
    ROUTES,
    Aligned,
    Residual,
    RoundPlan,
    RoundReport,
    RunAccept,
    RunOffer,
    ScoreShare,
)
from schemas.records import Finish, Refused


def messages_legal(evidence: Evidence) -> None:
    """Check 6: every body fits its schema and limits, and its sender may send it there."""
    for transcript in evidence.transcripts.values():
        _rightly_refused(transcript)
    for envelope in evidence.said:
        if envelope.message is None:
            sent = f"{envelope.header.kind} of {envelope.header.sender}"
            raise CheckFailed(envelope.place, f"{sent}: {envelope.flaw}")
        if isinstance(envelope.message, FederationMessage):
            sender, kind = envelope.header.sender, envelope.header.kind
            raise CheckFailed(envelope.place, f"{kind} of {sender} belongs to no run")
        may_send, may_receive = ROUTES[envelope.header.kind]
        ends = (envelope.header.sender, *(d.party for d in envelope.header.to))
        roles = [evidence.keys[p].role for p in ends if p in evidence.keys]
        if len(roles) != len(ends) or len(set(ends)) != len(ends):
            text = f"{ends[0]} names a receiver who is not a member, or one twice"
            raise CheckFailed(envelope.place, text)
        if roles[0] not in may_send or not set(roles[1:]) <= may_receive:
            raise CheckFailed(
                envelope.place, f"a {roles[0]} party may not send {envelope.header.kind} there"
            )


def _rightly_refused(transcript: Transcript) -> None:
    """A body that its receiver could not read cannot be read here either."""
    unread = {
        record.index
        for record in transcript.records
        for effect in record.effects
        if isinstance(effect, Refused) and effect.reason.startswith(UNREADABLE)
    }
    for envelope in transcript.received():
        if envelope.place.index in unread and envelope.message is not None:
            raise CheckFailed(envelope.place, "was refused as unreadable, but fits its schema")


def schedule_followed(evidence: Evidence) -> None:
    """Check 7: there is one manifest, and every round is in the plan that follows from it."""
    checks_scoring.scores_in_sessions_only(evidence)
    manifest = evidence.manifest
    if manifest is None:
        return
    _one_manifest(evidence, manifest)
    plan = evidence.plan
    least, most = max(1, manifest.alignment.rows_min), manifest.alignment.rows_max
    for said in evidence.said:
        if isinstance(said.message, Aligned) and not least <= said.message.rows <= most:
            text = f"{said.header.sender} reports common rows outside the limits of the manifest"
            raise CheckFailed(said.place, text)
    orders = [e for e in evidence.said if isinstance(e.message, RoundPlan)]
    if not orders:
        return
    if plan is None:
        text = f"{orders[0].header.sender} allows rounds before the common rows are known"
        raise CheckFailed(orders[0].place, text)
    checks_echo.echoes_hold(evidence)
    planned = _planned(evidence, plan)
    for envelope in evidence.said:
        _as_planned(envelope, plan, planned)
    checks_scoring.queries_answered(evidence)
    for transcript in evidence.transcripts.values():
        _had_its_rounds(transcript, plan)


def _one_manifest(evidence: Evidence, manifest: RunManifest) -> None:
    digest = model_digest(manifest)
    offers = [e for e in evidence.said if isinstance(e.message, RunOffer)]
    for envelope in offers:
        assert isinstance(envelope.message, RunOffer)
        sender, offered = envelope.header.sender, envelope.message.manifest
        if offered.run != evidence.run:
            fault = evidence.at_fault(sender, envelope)
            text = f"{sender} offers the manifest of run {offered.run}{fault}"
            raise CheckFailed(envelope.place, text)
        if model_digest(offered) != digest:  # 0.0 and -0.0 are equal, and other bytes
            fault = evidence.at_fault(sender, offers[0], envelope)
            raise CheckFailed(envelope.place, f"{sender} has offered two manifests{fault}")
    roles: dict[PartyId, str] = dict.fromkeys(manifest.passive_parties, "passive")
    roles |= {manifest.active_party: "active", COORDINATOR: "coordinator"}
    if roles != {party: key.role for party, key in evidence.keys.items()}:
        raise CheckFailed(None, "the members are not the parties of the manifest")
    _accepted(evidence, digest)


def _accepted(evidence: Evidence, digest: bytes) -> None:
    for envelope in evidence.said:
        message, sender = envelope.message, envelope.header.sender
        if not isinstance(message, RunAccept) or message.manifest_digest == digest:
            continue
        # Only its own journal shows which manifest it was offered.
        fault = evidence.at_fault(sender, envelope) if sender in evidence.transcripts else ""
        raise CheckFailed(envelope.place, f"{sender} accepts another manifest{fault}")


def _had_its_rounds(transcript: Transcript, plan: RunPlan) -> None:
    """A run that a party calls completed had every round, or a public stop rule ended it."""
    method = plan.manifest.method
    if not method.trains or method.may_stop_early:  # only trainings send residuals
        return
    ends = [
        (record.index, effect.outcome)
        for record in transcript.records
        for effect in record.effects
        if isinstance(effect, Finish)
    ]
    rounds = {e.message.round for e in transcript.envelopes if isinstance(e.message, Residual)}
    for index, outcome in ends:
        if outcome == "completed" and transcript.party != COORDINATOR and len(rounds) < plan.rounds:
            raise CheckFailed(
                Place(transcript.party, index),
                f"ends as completed after {len(rounds)} of {plan.rounds} rounds",
            )


def _planned(evidence: Evidence, plan: RunPlan) -> int:
    """How many rounds the coordinator allowed: spans that follow each other from 0."""
    planned = 0
    for envelope in evidence.said:
        message = envelope.message
        if isinstance(message, RoundPlan):
            is_next = (message.plan_digest, message.first) == (plan.digest, planned)
            if not is_next or not planned < message.last <= plan.rounds:
                raise CheckFailed(envelope.place, "allows rounds that do not follow from the plan")
            planned = message.last
    return planned


def _as_planned(envelope: Envelope, plan: RunPlan, planned: int) -> None:
    message = envelope.message
    if isinstance(message, Aligned):
        stated = (message.rows, message.rounds, message.plan_digest)
        if stated != (plan.rows, plan.rounds, plan.digest):
            raise CheckFailed(envelope.place, "states a different plan from the manifest's")
    if isinstance(message, RoundReport) and message.rounds_done > planned:
        raise CheckFailed(envelope.place, f"reports more than the {planned} rounds allowed")
    if isinstance(message, ScoreShare | Residual):
        if message.round >= min(planned, plan.rounds):
            raise CheckFailed(envelope.place, f"round {message.round} was never allowed")
        if message.release.tensor.shape != (_value_count(message, plan),):
            raise CheckFailed(envelope.place, "the number of values differs from its batch")


def _value_count(message: ScoreShare | Residual, plan: RunPlan) -> int:
    if isinstance(message, Residual):
        return plan.residual_count(message.round)
    return plan.share_count(message.round) + (SEAL_WORDS if plan.is_sealed else 0)


def rows_once_an_epoch(evidence: Evidence) -> None:
    """Check 8: no party releases a value of the same row twice in one epoch."""
    checks_scoring.answered_once(evidence)
    if evidence.plan is None:
        return
    schedule = evidence.plan.schedule
    used: dict[tuple[PartyId, int], NDArray[np.int64]] = {}
    for envelope, message in evidence.releases():
        if message.round >= schedule.rounds:
            continue  # check 7 reports it
        key = (envelope.header.sender, schedule.epoch(message.round))
        rows = used.setdefault(key, np.zeros(schedule.rows, dtype=np.int64))
        rows[schedule.batch(message.round)] += 1
        if rows[schedule.batch(message.round)].max() > 1:
            raise CheckFailed(
                envelope.place, f"releases rows of round {message.round} a second time"
            )
