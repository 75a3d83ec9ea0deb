"""The facts of a report, from a party's journal: what was sent, to whom, its noise and cost.

It owns what a report says; page.html.j2 owns how it looks. Losses come from folding the journal
inside the active party, and only that party's own report contains them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from hdpvfl_mq import __version__
from hdpvfl_mq.app.report.meaning import Meaning, meaning
from hdpvfl_mq.app.report.outflows import Outflow, outflows, training_release
from hdpvfl_mq.audit.audit import Verdict
from hdpvfl_mq.audit.evidence import Evidence, Transcript
from hdpvfl_mq.audit.scope import scope
from hdpvfl_mq.errors import HdpvflError
from hdpvfl_mq.privacy.accountant import Spent, epsilon_shown
from hdpvfl_mq.privacy.ledger import Books, apply, decode
from hdpvfl_mq.wire.codec import model_digest
from schemas.config import RunManifest
from schemas.ids import PartyId
from schemas.messages import Hello
from schemas.method_facts import Scores
from schemas.privacy import MU2_UNIT_BITS, Budget, SpendEvent
from schemas.records import Book

CURVE_POINTS_MAX = 200


@dataclass(frozen=True)
class Own:
    """Facts that only the party itself knows; empty if its files are on another machine."""

    dataset: str = ""
    columns: tuple[str, ...] = ()
    learned: bool = False  # preprocessing constants fitted to the private rows
    learnt: tuple[str, ...] = ()  # which ones, such as "centre of income"; empty if unknown


NOTHING_KNOWN = Own()


@dataclass(frozen=True)
class Origin:
    """What a report was made from, and when."""

    made_at: str
    version: str
    scope: tuple[str, ...]  # which journals were available, and what they prove
    manifest_digest: str
    keys: tuple[tuple[PartyId, str], ...]  # public keys, by party
    profile: str = ""  # machine and numeric libraries that the party's process stated


@dataclass(frozen=True)
class Lifetime:
    """The lifetime spend of a data set in its ledger."""

    dataset: str
    cap: Budget
    spent: float
    runs: int
    left: float  # epsilon of the largest run that still fits
    has_scores: bool = False  # people were scored, whose account is not part of the evidence


@dataclass(frozen=True)
class ReportFacts:
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
    def exact(self) -> int:
        """How many of these numbers left without noise."""
        return sum(outflow.exact for outflow in self.outflows)

    @property
    def scoring(self) -> Scores | None:
        """How scores leave, if the run is a scoring session."""
        return self.manifest.method.asks.scores if self.manifest else None

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
) -> ReportFacts:
    """Gather the facts from one party's journal."""
    manifest, plan = evidence.manifest, evidence.plan
    budget = manifest.budget if manifest else None
    lifetimes = _lifetimes(evidence, party)
    delta = budget.delta if budget else lifetimes[0].cap.delta if lifetimes else 0.01
    sent = list(evidence.transcripts[party].sent())
    events = _charged(evidence.transcripts[party])
    points = _running_totals(events)
    spent = points[-1][1] if points else Spent()
    mu = math.inf if spent.exact else math.sqrt(spent.mu2_units * 2.0**-MU2_UNIT_BITS)
    epsilon = epsilon_shown(spent, delta)
    return ReportFacts(
        run=evidence.run,
        party=party,
        role=evidence.keys[party].role,
        manifest=manifest,
        rows=plan.rows if plan else 0,
        outflows=outflows(sent, is_sealed=plan is not None and plan.is_sealed),
        spent=spent,
        mu=mu,
        epsilon=epsilon,
        delta=delta,
        cap=budget.epsilon if budget else None,
        lifetimes=lifetimes,
        curve=_curve(points, delta),
        meaning=meaning(mu, epsilon, releases=len(events), pure=spent.pure),
        losses=losses,
        verdicts=verdicts,
        own=own,
        origin=_origin(evidence, party, made_at),
    )


def _charged(transcript: Transcript) -> list[SpendEvent]:
    """Spend events of all releases by round: those sent, and those used only inside the party."""
    found: dict[str, SpendEvent] = {}
    for record in transcript.records:
        for effect in record.effects:
            if isinstance(effect, Book):
                found.setdefault(effect.release.release_id, effect.release.event)
    for envelope in transcript.sent():
        if (release := training_release(envelope)) is not None:
            found.setdefault(release.release_id, release.event)
    return sorted(found.values(), key=lambda event: event.round)


def _running_totals(events: list[SpendEvent]) -> list[tuple[int, Spent]]:
    """After each event: the number of rounds done, and all that is spent so far."""
    spent, points = Spent(), []
    for event in events:
        spent = spent.plus(event)
        points.append((event.round + 1, spent))
    return points


def _origin(evidence: Evidence, party: PartyId, made_at: str) -> Origin:
    manifest = evidence.manifest
    messages = [envelope.message for envelope in evidence.transcripts[party].sent()]
    stated = [message.numeric_profile for message in messages if isinstance(message, Hello)]
    return Origin(
        made_at=made_at,
        version=__version__,
        scope=tuple(scope(evidence)),
        manifest_digest=model_digest(manifest).hex() if manifest else "",
        keys=tuple((party, key.verify_key.hex()) for party, key in sorted(evidence.keys.items())),
        profile=stated[-1] if stated else "",
    )


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
            books.epsilon_left(dataset),
            books.people.sequence > 0,
        )
        for dataset in datasets
    )
