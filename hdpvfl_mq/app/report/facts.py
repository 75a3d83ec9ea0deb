"""The facts of a report, from a party's journal: what left, to whom, with what noise and cost.

It owns what a report says; how it looks is in page.html.j2. Losses come from folding the journal
inside the active party and go into that party's own file only.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from hdpvfl_mq.app.report.meaning import Meaning, meaning
from hdpvfl_mq.audit.audit import Verdict
from hdpvfl_mq.audit.evidence import Envelope, Evidence
from hdpvfl_mq.privacy.accountant import Spent, epsilon_shown
from hdpvfl_mq.privacy.ledger import decode
from schemas.config import RunManifest
from schemas.ids import PartyId
from schemas.messages import Residual, ScoreShare
from schemas.privacy import MU2_UNIT_BITS, Budget, CapFixed, Release

CURVE_POINTS_MAX = 200

IN_WORDS = {
    "hello": "greeting: versions, commitment to the noise seed, state of the privacy ledger",
    "run_accept": "consent to the run: number of rows and of columns",
    "run_refuse": "refusal of the run, and by which rule",
    "align_block": "blinded identifiers, to find common people without showing who they are",
    "aligned": "number of common people, fingerprints of order and plan",
    "score_share": "noised partial scores",
    "residual": "noised corrections",
    "round_report": "how many rounds are done",
    "withdraw": "withdrawal from the run",
    "ledger_head": "state of the privacy ledger, for the others to remember",
    "ledger_witness": "memory of the others' privacy ledgers",
}


@dataclass(frozen=True)
class Outflow:
    """All messages of one kind."""

    what: str
    receivers: str
    messages: int
    values: int  # numbers computed from private rows
    bytes: int
    noise_std: float | None


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
    lifetime: Budget | None
    curve: tuple[tuple[int, float], ...]  # round, epsilon spent so far
    meaning: Meaning
    losses: tuple[float, ...]
    verdicts: tuple[Verdict, ...]

    @property
    def values(self) -> int:
        """Numbers computed from private rows that left."""
        return sum(outflow.values for outflow in self.outflows)

    @property
    def is_unbounded(self) -> bool:
        """Whether nothing bounds what can be concluded."""
        return math.isinf(self.mu) or math.isinf(self.epsilon)


def gather_facts(
    evidence: Evidence,
    party: PartyId,
    verdicts: tuple[Verdict, ...],
    losses: tuple[float, ...] = (),
) -> Facts:
    """Read one party's journal."""
    manifest, plan = evidence.manifest, evidence.plan
    budget = manifest.budget if manifest else None
    lifetime = _lifetime(evidence, party)
    delta = budget.delta if budget else lifetime.delta if lifetime else 0.01
    sent = list(evidence.transcripts[party].sent())
    releases = [release for e in sent if (release := _release(e)) is not None]
    running, points = Spent(), []
    for release in releases:
        running = running.plus(release.event)
        points.append((release.event.round + 1, running))
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
        lifetime=lifetime,
        curve=_curve(points, delta),
        meaning=meaning(mu, epsilon, releases=len(releases)),
        losses=losses,
        verdicts=verdicts,
    )


def _release(envelope: Envelope) -> Release | None:
    message = envelope.message
    return message.release if isinstance(message, ScoreShare | Residual) else None


def _outflows(sent: list[Envelope]) -> tuple[Outflow, ...]:
    groups: dict[str, list[Envelope]] = {}
    for envelope in sent:
        groups.setdefault(envelope.header.kind, []).append(envelope)
    return tuple(_outflow(kind, envelopes) for kind, envelopes in groups.items())


def _outflow(kind: str, envelopes: list[Envelope]) -> Outflow:
    releases = [release for e in envelopes if (release := _release(e)) is not None]
    return Outflow(
        what=IN_WORDS.get(kind, kind.replace("_", " ")),
        receivers=", ".join(sorted({d.party for e in envelopes for d in e.header.to})),
        messages=len(envelopes),
        values=sum(release.tensor.shape[0] for release in releases),
        bytes=sum(len(frame) for e in envelopes for frame in e.frames),
        noise_std=releases[0].noise_std if releases else None,
    )


def _curve(points: list[tuple[int, Spent]], delta: float) -> tuple[tuple[int, float], ...]:
    if any(spent.exact for _, spent in points):
        return ()
    step = max(1, len(points) // CURVE_POINTS_MAX)
    kept = points[::step] if points[-1:] == points[::step][-1:] else [*points[::step], points[-1]]
    return tuple((done, epsilon_shown(spent, delta)) for done, spent in kept)


def _lifetime(evidence: Evidence, party: PartyId) -> Budget | None:
    entries = [decode(body) for _, _, _, body, _ in evidence.ledgers.get(party, ())]
    caps = [entry.cap for entry in entries if isinstance(entry, CapFixed)]
    return caps[-1] if caps else None
