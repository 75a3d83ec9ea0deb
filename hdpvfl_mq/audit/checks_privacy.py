"""Checks 9 to 13: is the noise enough, do the sums agree, and is every payment within its cap?

It owns the checks that read prices. They compare the journals with the plan, which they derive
again from the manifest; checks_ledger.py reads the ledgers that parties show.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

from hdpvfl_mq.audit import checks_ledger, checks_scoring
from hdpvfl_mq.audit.checks_chain import CheckFailed
from hdpvfl_mq.audit.evidence import Envelope, Evidence, Place, Transcript
from hdpvfl_mq.errors import PeerError
from hdpvfl_mq.privacy.accountant import Spent, affordable
from hdpvfl_mq.privacy.plan import NoisePlan
from hdpvfl_mq.privacy.receiving import receive_planned
from hdpvfl_mq.privacy.slots import placed
from schemas.ids import PARTY_ROLES, PartyId, release_id
from schemas.messages import Hello, Residual, ScoreShare
from schemas.records import Book, LedgerRead, Reserve, Started


def noise_sufficient(evidence: Evidence) -> None:
    """Check 9: every release declares the plan's mechanism, grid and sigma, and they suffice."""
    plan = evidence.plan
    if plan is None:
        return
    checks_scoring.scores_sealed(evidence)
    for role in PARTY_ROLES if plan.manifest.method.payer == "rows" else ():
        spent, budget = plan.spent_by(role), plan.manifest.budget
        if plan.manifest.guarantee == "sound" and (
            budget is None or not affordable(budget, spent.mu2_units, spent.tau_units, spent.pure)
        ):
            raise CheckFailed(None, f"the {role} side's noise does not give the claimed epsilon")
    for envelope, message in evidence.releases():
        noise = _noise(evidence, envelope.header.sender)
        release = message.release
        if (release.noise_std, release.exponent) != (noise.noise_std, noise.exponent):
            raise CheckFailed(
                envelope.place,
                f"declares noise {release.noise_std:g} on grid 2^{release.exponent}, the claim "
                f"needs {noise.noise_std:g} on grid 2^{noise.exponent}",
            )
        declared = (release.event.mechanism, release.event.disclosed_rows)
        if declared != (noise.mechanism, noise.disclosed_rows):
            raise CheckFailed(envelope.place, f"declares the mechanism {release.event.mechanism}")
        if plan.is_sealed and isinstance(
            message, ScoreShare
        ):  # only the receiver can read the values
            if release.tensor.dtype != "<i8":
                raise CheckFailed(envelope.place, "exact scores left unsealed")
        else:
            try:
                receive_planned(release, noise, count=release.tensor.shape[0])
            except PeerError as beyond:
                raise CheckFailed(envelope.place, str(beyond)) from None
        if envelope.digest in evidence.refused_values:  # sealed, or its receiver lies
            raise CheckFailed(envelope.place, "its receiver refused its values")


def _noise(evidence: Evidence, party: PartyId) -> NoisePlan:
    assert evidence.plan is not None
    role = evidence.keys[party].role
    if role == "coordinator":
        raise CheckFailed(None, "a release of the coordinator, which has no rows")
    return evidence.plan.noise_of(role)


def sums_agree(evidence: Evidence) -> None:
    """Check 10: what the releases cost adds up to the plan, and the ledger books exactly that."""
    if evidence.plan is not None:
        checks_scoring.scores_charged(evidence)
        _releases_paid(evidence)
    for party in evidence.ledgers:  # also without a plan: a cut journal may show none
        checks_ledger.books_what_left(evidence, party)


def _releases_paid(evidence: Evidence) -> None:
    """After each round, the releases of each party so far cost together what the plan asks for."""
    sent: dict[PartyId, dict[int, list[Envelope]]] = defaultdict(lambda: defaultdict(list))
    for envelope, message in evidence.releases():
        event = message.release.event
        if (event.release_id, event.round) != (message.release.release_id, message.round):
            raise CheckFailed(envelope.place, "pays for a different release from the one it holds")
        sent[envelope.header.sender][message.round].append(envelope)
    for party, rounds in sent.items():
        noise, spent = _noise(evidence, party), Spent()
        for round_, envelopes in sorted(rounds.items()):
            for envelope in envelopes:
                assert isinstance(envelope.message, ScoreShare | Residual)
                spent = spent.plus(envelope.message.release.event)
            if round_ >= noise.rounds:
                continue  # check 7 reports it
            due = _due(noise, round_)
            if replace(spent, exact=0) != due:  # check 9 compares mechanisms
                text = f"the releases of {party} pay {spent}, the plan asks for {due}"
                raise CheckFailed(envelopes[-1].place, text)
    for party in evidence.keys:
        _inner_releases(evidence, party)


def _due(noise: NoisePlan, round_: int) -> Spent:
    if noise.infinite:
        return Spent()
    return Spent(noise.mu2_cumulative[round_], noise.tau_cumulative[round_], 0, noise.spent.pure)


def _inner_releases(evidence: Evidence, party: PartyId) -> None:
    """Each release a party booked for itself is in the plan, at its price, and booked once."""
    assert evidence.plan is not None
    shown, seen = evidence.transcripts.get(party), set[str]()
    for record in shown.records if shown else ():
        for effect in record.effects:
            if not isinstance(effect, Book):
                continue
            release, place = effect.release, Place(party, record.index)
            kind = release.release_id.split("/")[2]
            noise = evidence.plan.inner_noise.get(kind)
            if noise is None or kind in seen:
                raise CheckFailed(place, f"books {release.release_id}, which is not in the plan")
            seen.add(kind)
            paid = (release.event.mu2_units, release.event.tau_units, release.noise_std)
            if paid != (noise.mu2_cumulative[-1], noise.tau_cumulative[-1], noise.noise_std):
                raise CheckFailed(place, f"{release.release_id} is not paid or noised as planned")
    sent = any(
        isinstance(m, ScoreShare) for e, m in evidence.releases() if e.header.sender == party
    )
    if shown and sent and "moments" in evidence.plan.inner_noise and "moments" not in seen:
        raise CheckFailed(party, "sent scores, but did not book the statistics behind them")


def release_ids_unique(evidence: Evidence) -> None:
    """Check 11: a release id names its run, party and round, and one payload for ever."""
    found: dict[str, tuple[Envelope, bytes | memoryview]] = {}
    for envelope, message in evidence.releases():
        release = message.release
        kind = "share" if message.kind == "score_share" else "residual"
        named = release_id(evidence.run, envelope.header.sender, kind, message.round)
        if release.release_id != named:
            raise CheckFailed(envelope.place, f"{release.release_id} is not {named}")
        first, payload = found.setdefault(named, (envelope, release.tensor.data))
        if payload != release.tensor.data:
            fault = evidence.at_fault(envelope.header.sender, first, envelope)
            raise CheckFailed(envelope.place, f"{named} has left with two payloads{fault}")


def caps_kept(evidence: Evidence) -> None:
    """Check 12: each reserve is what the plan costs, was free, and is within the ledger's cap."""
    for party, transcript in evidence.transcripts.items():
        if party not in _paying(evidence):
            _reserve_fits(transcript, None)
        elif evidence.has_counted(party):
            _reserve_fits(transcript, _cost(evidence, party))
    for party in evidence.ledgers:
        checks_ledger.within_cap(evidence, party)


def _cost(evidence: Evidence, party: PartyId) -> Spent:
    assert evidence.plan is not None
    return evidence.plan.spent_by("active" if evidence.keys[party].role == "active" else "passive")


def _paying(evidence: Evidence) -> set[PartyId]:
    return {party for party, key in evidence.keys.items() if key.role != "coordinator"}


def _reserve_fits(transcript: Transcript, cost: Spent | None) -> None:
    free, slots_free, reserved = 0, tuple[int, ...](), False
    for record in transcript.records:
        place = Place(transcript.party, record.index)
        if isinstance(record.input, Started | LedgerRead):
            free = record.input.standing.mu2_units_free
            slots_free = record.input.standing.slots_free
        for effect in record.effects:
            if not isinstance(effect, Reserve):
                continue
            if cost is None or reserved:
                raise CheckFailed(place, "reserves what it has no plan for")
            reserved = True
            amounts = (effect.mu2_units, effect.tau_units, effect.pure_units)
            if amounts != (cost.mu2_units, cost.tau_units, cost.pure):
                raise CheckFailed(place, "reserves a different amount from the plan's cost")
            if effect.mu2_units > free or placed(effect.pure_units, slots_free) is None:
                raise CheckFailed(place, "reserves more than its ledger had left")
    released = any(e.header.kind in ("score_share", "residual") for e in transcript.sent())
    if released and not reserved:
        raise CheckFailed(transcript.party, "releases values without a reserve")


def versions_constant(evidence: Evidence) -> None:
    """Check 13: a party keeps seed commitment, data and numeric profile over its restarts."""
    first: dict[PartyId, Hello] = {}
    for envelope in evidence.said:
        hello = envelope.message
        if not isinstance(hello, Hello):
            continue
        if hello.epoch != envelope.header.epoch:
            sender = envelope.header.sender
            raise CheckFailed(envelope.place, f"{sender}'s hello states a different epoch")
        known = first.setdefault(envelope.header.sender, hello)
        for name in ("seed_commitment", "dataset_fingerprint", "numeric_profile"):
            if getattr(hello, name) != getattr(known, name):
                words = name.replace("_", " ")
                raise CheckFailed(envelope.place, f"a different {words} from the first start")
    commitments = [hello.seed_commitment for hello in first.values()]
    if len(set(commitments)) != len(commitments):
        raise CheckFailed(None, "two parties committed to the same noise seed")
