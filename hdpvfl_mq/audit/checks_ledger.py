"""The parts of checks 10 and 12 that read ledgers: chain, heads, spends, reserves and caps.

It owns the comparison of a ledger with the journals; the ledger's own rules are in privacy/ledger.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping

from hdpvfl_mq.audit.checks_chain import CheckFailed
from hdpvfl_mq.audit.evidence import Evidence, Place, StoredEntry
from hdpvfl_mq.errors import HdpvflError
from hdpvfl_mq.privacy.ledger import EMPTY_LEDGER, Books, Entry, apply, decode, extend
from schemas.ids import PartyId
from schemas.messages import Hello
from schemas.privacy import LedgerHead, Release, ReleaseBooked, RunReserved
from schemas.records import Book, Reserve
from schemas.signed import Agreed, Agreement, LedgerNotice


def books_what_left(evidence: Evidence, party: PartyId) -> None:
    """Part of check 10: the chain holds, and the ledger books exactly what left."""
    heads = [EMPTY_LEDGER]
    for sequence, digest, _, body, opening in evidence.ledgers[party]:
        heads.append(extend(heads[-1], body, opening))
        if (sequence, digest) != (heads[-1].sequence, heads[-1].digest):
            raise CheckFailed(f"ledger of {party}", f"the chain is broken at entry {sequence}")
    booked = {
        e.event.release_id: e
        for _, e in _entries(evidence.ledgers[party], party)
        if isinstance(e, ReleaseBooked) and e.run == evidence.run
    }
    for envelope, message in evidence.releases():
        if envelope.header.sender == party and not _books(booked, message.release):
            raise CheckFailed(envelope.place, f"the ledger of {party} does not book it as it left")
    _heads_in_ledger(evidence, party, heads)
    _spends_shown(evidence, party, booked)


def _spends_shown(evidence: Evidence, party: PartyId, booked: Mapping[str, ReleaseBooked]) -> None:
    """Everything the ledger says was spent is in the journal; a journal that was cut lacks some."""
    shown = {message.release.release_id for _, message in evidence.releases()}
    for record in evidence.transcripts[party].records if party in evidence.transcripts else ():
        for kept in [e.release for e in record.effects if isinstance(e, Book)]:
            shown.add(kept.release_id)
            if not _books(booked, kept):
                place, name = Place(party, record.index), kept.release_id
                raise CheckFailed(place, f"the ledger of {party} does not book {name} like this")
    if missing := sorted(set(booked) - shown):
        raise CheckFailed(
            f"ledger of {party}",
            f"books {missing[0]}, which the journal of {party} does not show: it was cut",
        )


def _books(booked: Mapping[str, ReleaseBooked], release: Release) -> bool:
    """Whether a release is booked at its price; only its owner can compare a keyed digest."""
    entry = booked.get(release.release_id)
    if entry is None or entry.event != release.event:
        return False
    if entry.keyed:
        return release.event.mechanism in ("exact", "disclosed")
    return entry.digest == hashlib.sha256(release.tensor.data).digest()


def _heads_in_ledger(evidence: Evidence, party: PartyId, heads: list[LedgerHead]) -> None:
    for envelope in evidence.said:
        message = envelope.message
        if envelope.header.sender != party:
            continue
        match message:
            case Hello(ledger=head) | Agreement(ledger=head) | Agreed(ledger=head):
                pass
            case LedgerNotice(head=head):
                pass
            case _:
                continue
        if head.sequence >= len(heads) or heads[head.sequence] != head:
            raise CheckFailed(
                envelope.place, f"states entry {head.sequence}, which the ledger does not have"
            )


def _entries(stored: tuple[StoredEntry, ...], party: PartyId) -> Iterator[tuple[int, Entry]]:
    for sequence, _, named, body, _ in stored:
        try:
            entry = decode(body)
        except HdpvflError as broken:
            raise CheckFailed(f"ledger of {party}", f"entry {sequence}: {broken}") from None
        filed = entry.event.release_id if isinstance(entry, ReleaseBooked) else None
        if filed != named:
            raise CheckFailed(f"ledger of {party}", f"entry {sequence} is filed under another id")
        yield sequence, entry


def within_cap(evidence: Evidence, party: PartyId) -> None:
    """Part of check 12: every entry keeps the rules, and the run's reserve is the journal's."""
    books = Books()
    for sequence, entry in _entries(evidence.ledgers[party], party):
        try:
            apply(books, entry)
        except HdpvflError as refused:
            raise CheckFailed(f"ledger of {party}", f"entry {sequence}: {refused}") from None
        if isinstance(entry, RunReserved) and entry.run == evidence.run:
            _same_reserve(evidence, party, entry)


def _same_reserve(evidence: Evidence, party: PartyId, entry: RunReserved) -> None:
    amounts = (entry.mu2_units, entry.tau_units, tuple(sorted(s.units for s in entry.pure)))
    shown = evidence.transcripts.get(party)
    for record in shown.records if shown else ():
        for effect in record.effects:
            if isinstance(effect, Reserve) and amounts != (
                effect.mu2_units,
                effect.tau_units,
                effect.pure_units,
            ):
                raise CheckFailed(
                    Place(party, record.index), "the ledger holds another reserve of this run"
                )
