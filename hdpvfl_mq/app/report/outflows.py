"""What a party sent, by kind of message: to whom, how many numbers about rows, and their noise.

It owns the words for kinds of messages and the count of numbers with and without noise; facts.py
adds their cost.
"""

from __future__ import annotations

from dataclasses import dataclass

from hdpvfl_mq.audit.evidence import Envelope
from hdpvfl_mq.privacy.mechanism import SEAL_WORDS
from schemas.messages import Residual, ScoreShare
from schemas.privacy import Release
from schemas.scoring import ScoreReply

IN_WORDS = {
    "hello": "greeting: versions, commitment to the noise seed, state of the privacy ledger",
    "run_accept": "consent to the run: number of rows and of columns",
    "run_refuse": "refusal of the run, and by which rule",
    "align_block": "blinded identifiers, to find common people without showing who they are",
    "aligned": "number of common people, fingerprints of order and plan",
    "score_share": "partial scores",
    "score_query": "requests for scores, by place in the common order",
    "score_reply": "partial scores of people",
    "residual": "corrections",
    "agreement": "fingerprints of manifest, members and row order, for comparison",
    "agreed": "confirmation that all of these are the same",
    "ending": "what this party has done, before the run is closed",
    "ended": "confirmation of the end",
    "round_report": "how many rounds are done",
    "withdraw": "withdrawal from the run",
    "ledger_head": "state of the privacy ledger, for the others to remember",
    "ledger_witness": "memory of the others' privacy ledgers",
}


@dataclass(frozen=True)
class Outflow:
    """All messages of one kind that a party sent."""

    what: str
    receivers: str
    messages: int
    values: int  # numbers computed from private rows
    exact: int  # how many of them left without noise
    bytes: int
    noise_std: float | None


def outflows(sent: list[Envelope], *, is_sealed: bool) -> tuple[Outflow, ...]:
    """One entry for each kind of message; `is_sealed` says whether partial scores are sealed."""
    groups: dict[str, list[Envelope]] = {}
    for envelope in sent:
        groups.setdefault(envelope.header.kind, []).append(envelope)
    return tuple(_outflow(kind, each, is_sealed=is_sealed) for kind, each in groups.items())


def training_release(envelope: Envelope) -> Release | None:
    """The release in a message of a training, which is charged to the rows it was computed from."""
    message = envelope.message
    return message.release if isinstance(message, ScoreShare | Residual) else None


def how_noised(releases: list[Release]) -> str:
    """Word for whether values were sent with noise; exact values are never called noised."""
    kinds = {release.event.mechanism for release in releases}
    if not kinds & {"exact", "disclosed"}:
        return "noised"
    return "exact" if kinds <= {"exact", "disclosed"} else "noised and exact"


def _outflow(kind: str, envelopes: list[Envelope], *, is_sealed: bool) -> Outflow:
    seal = SEAL_WORDS if kind == "score_reply" or (kind == "score_share" and is_sealed) else 0
    releases = [release for e in envelopes if (release := _release(e)) is not None]
    counts = [(each, each.tensor.shape[0] - seal) for each in releases]
    what = IN_WORDS.get(kind, kind.replace("_", " "))
    return Outflow(
        what=f"{how_noised(releases)} {what}" if releases else what,
        receivers=", ".join(sorted({d.party for e in envelopes for d in e.header.to})),
        messages=len(envelopes),
        values=sum(count for _, count in counts),
        exact=sum(count for each, count in counts if how_noised([each]) == "exact"),
        bytes=sum(len(frame) for e in envelopes for frame in e.frames),
        noise_std=releases[0].noise_std if releases else None,
    )


def _release(envelope: Envelope) -> Release | None:
    message = envelope.message
    return message.release if isinstance(message, ScoreReply) else training_release(envelope)
