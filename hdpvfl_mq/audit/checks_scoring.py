"""The parts of checks 7 to 11 for a scoring session: queries, answers, seals and charges.

It owns the parts of these checks that read queries and answers; a run without queries passes.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from hdpvfl_mq.audit.checks_chain import CheckFailed
from hdpvfl_mq.audit.evidence import Envelope, Evidence, Place, Transcript
from hdpvfl_mq.methods.scoring.plan import ScoringPlan
from hdpvfl_mq.privacy.accountant import affordable
from hdpvfl_mq.privacy.mechanism import SEAL_WORDS
from schemas.ids import release_id
from schemas.records import Charge, Charged
from schemas.scoring import ScoreQuery, ScoreReply


def _queries(evidence: Evidence) -> dict[int, ScoreQuery]:
    found: dict[int, ScoreQuery] = {}
    for envelope in evidence.said:
        message = envelope.message
        if isinstance(message, ScoreQuery) and found.setdefault(message.number, message) != message:
            raise CheckFailed(envelope.place, f"asks twice under number {message.number}")
    return found


def _replies(evidence: Evidence) -> Iterator[tuple[Envelope, ScoreReply]]:
    for envelope in evidence.said:
        if isinstance(envelope.message, ScoreReply):
            yield envelope, envelope.message


def _plan(evidence: Evidence) -> ScoringPlan | None:
    plan = evidence.plan
    return plan if isinstance(plan, ScoringPlan) else None


def scores_in_sessions_only(evidence: Evidence) -> None:
    """Part of check 7: nobody asks for scores, or sends some, in a run that is not a session."""
    if evidence.manifest is not None and evidence.manifest.method.is_session:
        return
    for envelope in evidence.said:
        if isinstance(envelope.message, ScoreQuery | ScoreReply):
            sender = envelope.header.sender
            text = f"{sender} speaks of scores in a run that is not a session"
            raise CheckFailed(envelope.place, text)


def queries_answered(evidence: Evidence) -> None:
    """Part of check 7: every answer has its query, and holds a score for each place it grants."""
    if (plan := _plan(evidence)) is None:
        return
    queries = _queries(evidence)
    for message in queries.values():
        places = message.places.array().astype(np.int64)
        within = places.ndim == 1 and (places[1:] > places[:-1]).all()
        if not within or (places.size and not 0 <= places[0] <= places[-1] < plan.rows):
            raise CheckFailed(None, f"query {message.number} leaves the session's places")
    for envelope, reply in _replies(evidence):
        query = queries.get(reply.number)
        if query is None or query.last:
            raise CheckFailed(envelope.place, "answers a query that nobody shows")
        asked = query.places.shape[0]
        bits = np.unpackbits(np.frombuffer(reply.refused, dtype=np.uint8))
        if reply.release.tensor.shape != (asked - int(bits.sum()) + SEAL_WORDS,):
            raise CheckFailed(envelope.place, "the number of scores differs from what it grants")


def answered_once(evidence: Evidence) -> None:
    """Parts of checks 8 and 11: a party answers a query once, under the query's release id."""
    seen = set[str]()
    for envelope, reply in _replies(evidence):
        named = release_id(evidence.run, envelope.header.sender, "score", reply.number)
        if {reply.release.release_id, reply.release.event.release_id} != {named}:
            raise CheckFailed(envelope.place, f"{reply.release.release_id} is not {named}")
        if named in seen:
            raise CheckFailed(envelope.place, f"answers query {reply.number} a second time")
        seen.add(named)


def scores_sealed(evidence: Evidence) -> None:
    """Part of check 9: every answer is sealed, declares the plan's noise and its price."""
    if (plan := _plan(evidence)) is None:
        return
    noise, budget = plan.passive_noise, plan.manifest.budget
    if budget is not None and not affordable(budget, plan.mu2_units, noise.tau_cumulative[0]):
        raise CheckFailed(None, "the noise of a score does not give the claimed epsilon")
    for envelope, reply in _replies(evidence):
        release, event = reply.release, reply.release.event
        if release.tensor.dtype != "<i8":
            raise CheckFailed(envelope.place, "scores left unsealed")
        if (release.noise_std, release.exponent) != (noise.noise_std, noise.exponent):
            raise CheckFailed(envelope.place, "declares a different noise from the plan")
        disclosed = release.tensor.shape[0] - SEAL_WORDS if noise.disclosed_rows else 0
        mechanism = "disclosed" if noise.disclosed_rows else "lattice_gaussian"
        price = (event.mechanism, event.disclosed_rows, event.mu2_units)
        if price != (mechanism, disclosed, plan.mu2_units):
            raise CheckFailed(envelope.place, "declares a different price from the plan")


def scores_charged(evidence: Evidence) -> None:
    """Part of check 10: people are charged before they are scored, and the account only grows."""
    if _plan(evidence) is None:
        return
    queries = _queries(evidence)
    for transcript in evidence.transcripts.values():
        granted = _granted(transcript, queries)
        for envelope in transcript.sent():
            reply = envelope.message
            if isinstance(reply, ScoreReply) and granted.get(reply.number) != reply.refused:
                raise CheckFailed(envelope.place, f"answers query {reply.number} uncharged")


def _is_all_refused(refused: bytes, query: ScoreQuery | None) -> bool:
    """Whether a query gets nothing: one whose number was used before has no entry of its own."""
    bits = int.from_bytes(refused, "big").bit_count()
    return query is not None and bits == query.places.shape[0]


def _granted(transcript: Transcript, queries: dict[int, ScoreQuery]) -> dict[int, bytes]:
    """What the account granted of each query, in the order of the journal."""
    asked, found, sequence = -1, dict[int, bytes](), 0
    for record in transcript.records:
        place = Place(transcript.party, record.index)
        if isinstance(record.input, Charged):
            is_used = _is_all_refused(record.input.refused, queries.get(asked))
            least = sequence if is_used else sequence + 1
            if record.input.query != asked or record.input.head.sequence < least:
                raise CheckFailed(
                    place, "the head of the account of scored people does not advance"
                )
            found[asked], sequence = record.input.refused, record.input.head.sequence
        for effect in record.effects:
            if isinstance(effect, Charge):
                asked = effect.query
                if asked not in queries or queries[asked].places != effect.places:
                    raise CheckFailed(place, f"charges people that query {asked} does not name")
    return found
