"""Part of check 7: all parties had the same orders and residuals, and echoed what they had.

It owns who is at fault when echoes differ, which the live run cannot know: orders and residuals are
signed by their sender, so two different ones at the same place show its lie; an echo is signed by
its party, so one that does not follow from what that party had shows the lie of that party.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from itertools import chain, combinations, pairwise, takewhile

from hdpvfl_mq.audit.checks_chain import CheckFailed
from hdpvfl_mq.audit.evidence import Envelope, Evidence, Transcript
from hdpvfl_mq.wire.echoes import orders_start, with_order, with_residual
from schemas.ids import COORDINATOR, PartyId
from schemas.messages import Aligned, Residual, Resume, RoundPlan, RoundReport, ScoreShare
from schemas.privacy import Release
from schemas.records import Refused
from schemas.signed import Agreement

Order = RoundPlan | Resume


def echoes_hold(evidence: Evidence) -> None:
    """Compare what parties had of one sender, and each echo with what its party had."""
    parties = [party for party in evidence.keys if party != COORDINATOR]
    orders = {party: _told(evidence, party) for party in parties}
    for one, other in combinations(parties, 2):
        for mine, theirs in zip(orders[one], orders[other], strict=False):
            if mine.message != theirs.message:
                streams = {party: _stream(evidence, party) for party in (one, other)}
                is_whole = all(_is_whole(stream, party) for party, stream in streams.items())
                # All of both: under the number of an order, a journal may show what nobody signed.
                shown = chain.from_iterable(streams.values())
                fault = evidence.at_fault(COORDINATOR, *shown) if is_whole else ""
                text = f"{COORDINATOR} has told {one} and {other} different orders{fault}"
                raise CheckFailed(theirs.place, text)
    for party in parties:
        _orders_echoed(evidence, party, _taken(evidence, party, orders[party]))
    _residuals_reported(evidence, [_reports(evidence, party) for party in parties])


def _stream(evidence: Evidence, party: PartyId) -> list[Envelope]:
    """All that the coordinator sent to a party, by its journal or by the coordinator's."""
    if party in evidence.transcripts:
        received = evidence.transcripts[party].received()
        return [e for e in received if e.header.sender == COORDINATOR]
    if COORDINATOR not in evidence.transcripts:
        return []
    return [e for e in evidence.transcripts[COORDINATOR].sent() if e.delivery(party) is not None]


def _is_whole(stream: list[Envelope], party: PartyId) -> bool:
    """Whether a journal leaves out none of these envelopes: places of orders count only then."""
    numbers = [d.sequence for e in stream if (d := e.delivery(party))]
    return numbers == list(range(1, len(stream) + 1))


def _told(evidence: Evidence, party: PartyId) -> list[Envelope]:
    """All orders to a party, taken or refused."""
    return [e for e in _stream(evidence, party) if isinstance(e.message, Order)]


def _taken(evidence: Evidence, party: PartyId, told: list[Envelope]) -> list[Envelope]:
    """Orders that a party must have taken; nothing if that is not certain.

    Its own journal says which it refused. The coordinator's does not: there, all must be legal,
    follow the party's own message that it is ready, and be named by it.
    """
    if party in evidence.transcripts:
        refused = _refused(evidence.transcripts[party])
        return [e for e in told if e.place.index not in refused]
    return _named(evidence, party) if _are_legal(evidence, told) else []


def _are_legal(evidence: Evidence, orders: list[Envelope]) -> bool:
    plan, manifest, planned = evidence.plan, evidence.manifest, 0
    for each in orders:
        order = each.message
        if plan is None or manifest is None:
            return False
        if isinstance(order, RoundPlan):
            stated = (order.plan_digest, order.first)
            if stated != (plan.digest, planned) or not planned < order.last <= plan.rounds:
                return False
            planned = order.last
        elif isinstance(order, Resume):
            is_refused = order.absent and manifest.absence == "wait"
            if is_refused or not planned:  # nobody resumes what no plan has begun
                return False
    return True


def _named(evidence: Evidence, party: PartyId) -> list[Envelope]:
    """Orders after the party was ready, up to the first envelope that it names by no digest.

    A number that it acknowledged is not enough: the coordinator can show an envelope under that
    number that it did not send, or one in the place of an order.
    """
    signed = [e for e in _from(evidence, party) if evidence.is_signed(e)]
    named = {e.header.parent for e in signed}
    named |= {d.seen for e in signed if (d := e.delivery(COORDINATOR))}
    words = [e for e in signed if isinstance(e.message, Aligned)]
    ready = [d.ack for e in words if (d := e.delivery(COORDINATOR))]
    stream = _stream(evidence, party)
    if not ready or not _is_whole(stream, party):
        return []
    later = takewhile(lambda e: e.digest in named, stream[ready[0] :])
    return [e for e in later if isinstance(e.message, Order)]


def _refused(journal: Transcript) -> set[int]:
    """Records whose own message was refused; a message that came early is refused later."""
    return {r.index for r in journal.records if any(_is_refusal(e) for e in r.effects)}


def _is_refusal(effect: object) -> bool:
    return isinstance(effect, Refused) and ", early: " not in effect.reason


def _from(evidence: Evidence, party: PartyId) -> Iterator[Envelope]:
    return (e for e in evidence.said if e.header.sender == party)


def _orders_echoed(evidence: Evidence, party: PartyId, orders: list[Envelope]) -> None:
    agreed = [(e, e.message) for e in _from(evidence, party) if isinstance(e.message, Agreement)]
    if not agreed or not orders:
        return
    terms, signed = agreed[0]
    links = [orders_start(_terms_digest(signed))]
    for order in orders:
        assert isinstance(order.message, Order)
        links.append(with_order(links[-1], order.message))
    for envelope in _from(evidence, party):
        echo = envelope.message
        if not isinstance(echo, ScoreShare) or echo.orders >= len(links):
            continue
        if echo.orders_digest != links[echo.orders]:
            fault = evidence.at_fault(party, terms, envelope)
            text = f"{party} echoes orders that differ from those it was told{fault}"
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
    """From the party's own journal: no other says which residuals it refused."""
    journal = evidence.transcripts.get(party)
    if journal is None:
        return _Reports(party, [], [])
    effects = (effect for record in journal.records for effect in record.effects)
    if any(isinstance(e, Refused) and not _is_refusal(e) for e in effects):
        return _Reports(party, [], [])  # one of them came early and was refused
    refused, is_active = _refused(journal), evidence.keys[party].role == "active"
    stream = [e for e in journal.envelopes if e.sent == is_active]
    residuals = (e.message for e in stream if is_active or e.place.index not in refused)
    releases = [message.release for message in residuals if isinstance(message, Residual)]
    reports = [
        (e, e.message)
        for e in journal.sent()
        if isinstance(e.message, RoundReport) and e.message.residuals <= len(releases)
    ]
    return _Reports(party, releases, reports)


def _residuals_reported(evidence: Evidence, all_reports: list[_Reports]) -> None:
    """Each report follows from the previous one; only parties know where the hash starts."""
    for each in all_reports:
        for (earlier, before), (envelope, report) in pairwise(each.reports):
            counts = before.residuals <= report.residuals
            if not counts or each.after(before, report.residuals) != report.residuals_digest:
                fault = evidence.at_fault(each.party, earlier, envelope)
                text = f"{each.party} reports residuals that differ from those it had{fault}"
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
