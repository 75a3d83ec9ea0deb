"""Part of check 7: all parties had the same orders and residuals, and echoed what they had.

It owns who is at fault when echoes differ, which the live run cannot know: orders and residuals are
signed by their sender, so two different ones at the same place show its lie; an echo is signed by
its party, so one that does not follow from what that party had shows the lie of that party. What a
party had is read from its own journal, or from the sender's as far as the party acknowledged or
answered it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from itertools import combinations, pairwise

from hdpvfl_mq.audit.checks_chain import CheckFailed
from hdpvfl_mq.audit.evidence import Envelope, Evidence, Transcript
from hdpvfl_mq.wire.echoes import orders_start, with_order, with_residual
from schemas.ids import COORDINATOR, PartyId
from schemas.messages import Residual, Resume, RoundPlan, RoundReport, ScoreShare
from schemas.privacy import Release
from schemas.records import Refused
from schemas.signed import Agreement

Order = RoundPlan | Resume


def echoes_hold(evidence: Evidence) -> None:
    """Compare what parties had of one sender, and each echo with what its party had."""
    parties = [party for party in evidence.keys if party != COORDINATOR]
    orders = {party: _had(evidence, party, COORDINATOR, Order) for party in parties}
    for one, other in combinations(parties, 2):
        for mine, theirs in zip(orders[one], orders[other], strict=False):
            if mine.message != theirs.message:
                raise CheckFailed(
                    theirs.place,
                    f"{COORDINATOR} has told {one} and {other} different orders; at fault: "
                    f"{COORDINATOR}",
                )
    for party in parties:
        _orders_echoed(evidence, party, orders[party])
    _residuals_reported([_reports(evidence, party) for party in parties])


def _had(evidence: Evidence, party: PartyId, sender: PartyId, kind: object) -> list[Envelope]:
    """What a party took of a sender, in order; nothing if no journal shows it."""
    if party in evidence.transcripts:
        journal = evidence.transcripts[party]
        refused = _refused(journal)
        stream = [e for e in journal.received() if e.place.index not in refused]
    elif sender in evidence.transcripts:
        stream = _acknowledged(evidence, party, evidence.transcripts[sender])
    else:
        return []
    return [e for e in stream if e.header.sender == sender and isinstance(e.message, kind)]  # type: ignore[arg-type]  # a class or a union of classes


def _acknowledged(evidence: Evidence, party: PartyId, journal: Transcript) -> list[Envelope]:
    """What an owner sent to a party, up to the last that the party acknowledged or answered."""
    signed = list(_from(evidence, party))
    answered = {e.header.parent for e in signed}
    taken = max((d.ack for e in signed if (d := e.delivery(journal.party))), default=0)
    sent = [(e, d.sequence) for e in journal.sent() if (d := e.delivery(party))]
    taken = max(taken, *(n for e, n in sent if e.digest in answered), 0)
    return [e for e, number in sent if number <= taken]


def _refused(journal: Transcript) -> set[int]:
    return {r.index for r in journal.records if any(isinstance(e, Refused) for e in r.effects)}


def _from(evidence: Evidence, party: PartyId) -> Iterator[Envelope]:
    return (e for e in evidence.said if e.header.sender == party)


def _orders_echoed(evidence: Evidence, party: PartyId, orders: list[Envelope]) -> None:
    terms = [e.message for e in _from(evidence, party) if isinstance(e.message, Agreement)]
    if not terms or not orders:
        return
    links = [orders_start(_terms_digest(terms[0]))]
    for order in orders:
        assert isinstance(order.message, Order)
        links.append(with_order(links[-1], order.message))
    for envelope in _from(evidence, party):
        echo = envelope.message
        if not isinstance(echo, ScoreShare) or echo.orders >= len(links):
            continue
        if echo.orders_digest != links[echo.orders]:
            text = f"{party} echoes other orders than it was told; at fault: {party}"
            raise CheckFailed(envelope.place, text)


def _terms_digest(signed: Agreement) -> bytes:
    parts = (signed.manifest, signed.members, signed.toss, signed.order, signed.plan)
    return hashlib.sha256(b"hdpvfl-mq agreement 1\x00" + b"".join(parts)).digest()


@dataclass(frozen=True)
class _Reports:
    """A party's reports, in order, and the residuals that it sent or took."""

    party: PartyId
    releases: list[Release]
    reports: list[tuple[Envelope, RoundReport]]

    def after(self, known: RoundReport, count: int) -> bytes:
        """The hash of so many residuals, going on from a report."""
        return reduce(with_residual, self.releases[known.residuals : count], known.residuals_digest)


def _reports(evidence: Evidence, party: PartyId) -> _Reports:
    active = next(p for p, key in evidence.keys.items() if key.role == "active")
    if party != active:
        residuals = _had(evidence, party, active, Residual)
    else:
        shown = party in evidence.transcripts
        residuals = [e for e in _from(evidence, party) if shown and isinstance(e.message, Residual)]
    releases = [e.message.release for e in residuals if isinstance(e.message, Residual)]
    reports = [
        (e, e.message)
        for e in _from(evidence, party)
        if isinstance(e.message, RoundReport) and e.message.residuals <= len(releases)
    ]
    return _Reports(party, releases, reports)


def _residuals_reported(all_reports: list[_Reports]) -> None:
    """Each report follows from the one before; only the parties know where the hash starts."""
    for each in all_reports:
        for (_, before), (envelope, report) in pairwise(each.reports):
            counts = before.residuals <= report.residuals
            if not counts or each.after(before, report.residuals) != report.residuals_digest:
                text = f"{each.party} reports other residuals than it had; at fault: {each.party}"
                raise CheckFailed(envelope.place, text)
    for one, other in combinations([each for each in all_reports if each.reports], 2):
        first, second = one.reports[0], other.reports[0]
        count = max(first[1].residuals, second[1].residuals)
        if one.releases[:count] != other.releases[:count]:
            continue  # not that many, or check 11 reports it
        if one.after(first[1], count) != other.after(second[1], count):
            raise CheckFailed(
                second[0].place,
                f"{one.party} and {other.party} had the same residuals and report different "
                "hashes from the start; 'hdpvfl replay' inside each of them shows who lies",
            )
