"""The facts of a report, from a party's journal: what was sent, to whom, its noise and cost.

It owns what a report says; page.html.j2 owns how it looks. Losses come from folding the journal
inside the active party, and only that party's own report contains them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from hdpvfl_mq import __version__
from hdpvfl_mq.app.report.meaning import Meaning, meaning
from hdpvfl_mq.audit.audit import Verdict
from hdpvfl_mq.audit.evidence import Envelope, Evidence, Transcript
from hdpvfl_mq.audit.scope import scope
from hdpvfl_mq.errors import HdpvflError
from hdpvfl_mq.privacy.accountant import Spent, epsilon_shown
from hdpvfl_mq.privacy.ledger import Books, apply, decode
from hdpvfl_mq.privacy.mechanism import SEAL_WORDS
from hdpvfl_mq.wire.codec import model_digest
from schemas.config import RunManifest
from schemas.ids import PartyId
from schemas.messages import Residual, ScoreReply, ScoreShare
from schemas.privacy import MU2_UNIT_BITS, Budget, Release, SpendEvent
from schemas.records import Book

CURVE_POINTS_MAX = 200

IN_WORDS = {
    "hello": "greeting: versions, commitment to the noise seed, state of the privacy ledger",
    "run_accept": "consent to the run: number of rows and of columns",
    "run_refuse": "refusal of the run, and by which rule",
    "align_block": "blinded identifiers, to find common people without showing who they are",
    "aligned": "number of common people, fingerprints of order and plan",
    "score_share": "partial scores",
    "residual": "corrections",
    "score_query": "places of the people whose scores are asked for",
    "score_reply": "scores of the people who were asked for",
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
    disclosed: int  # of them exact scores of people who count as disclosed
    bytes: int
    noise_std: float | None


@dataclass(frozen=True)
class Own:
    """Facts that only the party itself knows; empty if its files are on another machine."""

    dataset: str = ""
    columns: tuple[str, ...] = ()
    learned: bool = False  # preprocessing constants fitted to the private rows


NOTHING_KNOWN = Own()


@dataclass(frozen=True)
class Origin:
    """What a report was made from, and when."""

    made_at: str
    version: str
    scope: tuple[str, ...]  # which journals were available, and what they prove
    manifest_digest: str
    keys: tuple[tuple[PartyId, str], ...]  # public keys, by party


@dataclass(frozen=True)
class Lifetime:
    """The lifetime spend of a data set in its ledger."""

    dataset: str
    cap: Budget
    spent: float
    runs: int


@dataclass(frozen=True)
class Facts:
    """Everything a report of one party says."""

    run: str
    party: PartyId
    role: str
    manifest: RunManifest | None
    rows: int
    outflows: tuple[Outflow, ...]
    spent: Spent
    mu: float
    epsilon: float
    delta: float
    cap: float | None  # epsilon of the run
    lifetimes: tuple[Lifetime, ...]
    curve: tuple[tuple[int, float], ...]  # round, epsilon spent so far
    meaning: Meaning
    losses: tuple[float, ...]
    verdicts: tuple[Verdict, ...]
    own: Own
    origin: Origin

    @property
    def values(self) -> int:
        """Count of sent numbers that were computed from private rows."""
        return sum(outflow.values for outflow in self.outflows)

    @property
    def disclosed(self) -> int:
        """Count of sent exact scores; epsilon does not hold for the people they are of."""
        return sum(outflow.disclosed for outflow in self.outflows)

    @property
    def is_unbounded(self) -> bool:
        """Whether the privacy loss has no bound."""
        return math.isinf(self.mu) or math.isinf(self.epsilon)


def gather_facts(
    evidence: Evidence,
    party: PartyId,
    verdicts: tuple[Verdict, ...],
    losses: tuple[float, ...] = (),
    *,
    own: Own = NOTHING_KNOWN,
    made_at: str = "",
) -> Facts:
    """Gather the facts from one party's journal."""
    manifest, plan = evidence.manifest, evidence.plan
    budget = manifest.budget if manifest else None
    lifetimes = _lifetimes(evidence, party)
    delta = budget.delta if budget else lifetimes[0].cap.delta if lifetimes else 0.01
    sent = list(evidence.transcripts[party].sent())
    events = _charged(evidence.transcripts[party])
    running, points = Spent(), []
    for event in events:
        running = running.plus(event)
        points.append((event.round + 1, running))
    mu = math.inf if running.exact else math.sqrt(running.mu2_units * 2.0**-MU2_UNIT_BITS)
    epsilon = epsilon_shown(running, delta)
    return Facts(
        run=evidence.run,
        party=party,
        role=evidence.keys[party].role,
        manifest=manifest,
        rows=plan.rows if plan else 0,
        outflows=_outflows(sent),
        spent=running,
        mu=mu,
        epsilon=epsilon,
        delta=delta,
        cap=budget.epsilon if budget else None,
        lifetimes=lifetimes,
        curve=_curve(points, delta),
        meaning=meaning(mu, epsilon, releases=len(events), pure=running.pure),
        losses=losses,
        verdicts=verdicts,
        own=own,
        origin=_origin(evidence, made_at),
    )


def _charged(transcript: Transcript) -> list[SpendEvent]:
    """Spend events of all releases by round: those sent, and those used only inside the party.

    In a session a person pays for one score, however often it is asked for.
    """
    found: dict[str, SpendEvent] = {}
    for record in transcript.records:
        for effect in record.effects:
            if isinstance(effect, Book):
                found.setdefault(effect.release.release_id, effect.release.event)
    for envelope in transcript.sent():
        if (release := _release(envelope)) is not None:
            is_answer = isinstance(envelope.message, ScoreReply)
            found.setdefault("answer" if is_answer else release.release_id, release.event)
    return sorted(found.values(), key=lambda event: event.round)


def _origin(evidence: Evidence, made_at: str) -> Origin:
    manifest = evidence.manifest
    return Origin(
        made_at=made_at,
        version=__version__,
        scope=tuple(scope(evidence)),
        manifest_digest=model_digest(manifest).hex() if manifest else "",
        keys=tuple((party, key.verify_key.hex()) for party, key in sorted(evidence.keys.items())),
    )


def _release(envelope: Envelope) -> Release | None:
    message = envelope.message
    return message.release if isinstance(message, ScoreShare | Residual | ScoreReply) else None


def _values(envelope: Envelope) -> int:
    """The numbers of a release, without the tag of a seal."""
    if (release := _release(envelope)) is None:
        return 0
    is_sealed = isinstance(envelope.message, ScoreReply) or (
        release.event.mechanism in ("exact", "disclosed") and release.tensor.dtype == "<i8"
    )
    return release.tensor.shape[0] - (SEAL_WORDS if is_sealed else 0)


def _outflows(sent: list[Envelope]) -> tuple[Outflow, ...]:
    groups: dict[str, list[Envelope]] = {}
    for envelope in sent:
        groups.setdefault(envelope.header.kind, []).append(envelope)
    return tuple(_outflow(kind, envelopes) for kind, envelopes in groups.items())


def _outflow(kind: str, envelopes: list[Envelope]) -> Outflow:
    releases = [release for e in envelopes if (release := _release(e)) is not None]
    what = IN_WORDS.get(kind, kind.replace("_", " "))
    return Outflow(
        what=f"{how_noised(releases)} {what}" if releases else what,
        receivers=", ".join(sorted({d.party for e in envelopes for d in e.header.to})),
        messages=len(envelopes),
        values=sum(_values(e) for e in envelopes),
        disclosed=sum(release.event.disclosed_rows for release in releases),
        bytes=sum(len(frame) for e in envelopes for frame in e.frames),
        noise_std=releases[0].noise_std if releases else None,
    )


def how_noised(releases: list[Release]) -> str:
    """Word for whether values were sent with noise; exact values are never called noised."""
    kinds = {release.event.mechanism for release in releases}
    if not kinds & {"exact", "disclosed"}:
        return "noised"
    return "exact" if kinds <= {"exact", "disclosed"} else "noised and exact"


def _curve(points: list[tuple[int, Spent]], delta: float) -> tuple[tuple[int, float], ...]:
    if any(spent.exact for _, spent in points):
        return ()
    step = max(1, len(points) // CURVE_POINTS_MAX)
    kept = points[::step] if points[-1:] == points[::step][-1:] else [*points[::step], points[-1]]
    return tuple((done, epsilon_shown(spent, delta)) for done, spent in kept)


def _lifetimes(evidence: Evidence, party: PartyId) -> tuple[Lifetime, ...]:
    """The data sets this run was charged to; empty if the ledger is damaged or not available."""
    books = Books()
    try:
        for _, _, _, body, _ in evidence.ledgers.get(party, ()):
            apply(books, decode(body))
    except HdpvflError:
        return ()  # the audit reports the damage
    datasets = sorted({dataset for dataset, run in books.runs if run == evidence.run})
    return tuple(
        Lifetime(
            dataset,
            books.caps[dataset],
            books.epsilon_spent(dataset),
            sum(name == dataset for name, _ in books.runs),
        )
        for dataset in datasets
    )
