"""Checks 1 to 5: is the evidence complete, in order, signed, witnessed, and equal at both ends?

It owns the checks that need not know what a run computes; it knows no plan and no ledger. Each
check raises `CheckFailed` naming the record, or returns nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from nacl.signing import VerifyKey

from hdpvfl_mq.audit.evidence import Envelope, Evidence, Place, Transcript
from hdpvfl_mq.errors import HdpvflError, PeerError
from hdpvfl_mq.journal import chain
from hdpvfl_mq.journal.merkle import Tree
from hdpvfl_mq.wire.signing import verify
from schemas.envelope import NO_PARENT
from schemas.federation import Forget, Meet, SignWith
from schemas.ids import PartyId
from schemas.records import GENESIS, JOURNAL_FORMAT, Started


class CheckFailed(HdpvflError):  # noqa: N818 - a verdict, not an accident
    """What a check found, and where."""

    def __init__(self, place: Place | PartyId | None, text: str) -> None:
        super().__init__(f"{place}: {text}" if place else text)
        self.place = place
        self.text = text


def records_in_order(evidence: Evidence) -> None:
    """Check 1: every record can be read, is numbered by its place, and belongs to this run."""
    for transcript in evidence.transcripts.values():
        expected = {
            "format": str(JOURNAL_FORMAT),
            "run": evidence.run,
            "party": transcript.party,
        }
        if dict(transcript.meta) != expected:
            raise CheckFailed(transcript.party, f"the journal says {dict(transcript.meta)}")
        if not transcript.rows:
            raise CheckFailed(transcript.party, "the journal is empty")
        for place, text in transcript.flaws:
            raise CheckFailed(place, text)
        for expected_index, (index, _, _) in enumerate(transcript.rows):
            if index != expected_index:
                raise CheckFailed(
                    Place(transcript.party, expected_index), f"is missing, {index} is next"
                )
        for index, record in enumerate(transcript.records):
            if record.index != index:
                raise CheckFailed(Place(transcript.party, index), f"says it is {record.index}")
            if any(isinstance(effect, Meet | Forget | SignWith) for effect in record.effects):
                raise CheckFailed(
                    Place(transcript.party, index), "has an effect that belongs to no run"
                )


def chain_holds(evidence: Evidence) -> None:
    """Check 2: each digest covers the stored bytes, and each record names the previous digest."""
    for transcript in evidence.transcripts.values():
        for index, stored, digest in transcript.rows:
            if chain.link(stored) != digest:
                raise CheckFailed(Place(transcript.party, index), "does not match its digest")
        previous = GENESIS
        digests = {index: digest for index, _, digest in transcript.rows}
        for record in transcript.records:
            if record.previous != previous:
                place = Place(transcript.party, record.index)
                raise CheckFailed(place, "does not follow the record before it")
            previous = digests.get(record.index, GENESIS)


def signatures_verify(evidence: Evidence) -> None:
    """Check 3: every envelope verifies with its sender's key, and epochs rise one by one."""
    for envelope in evidence.envelopes:
        key = evidence.keys.get(envelope.header.sender)
        if key is None:
            raise CheckFailed(envelope.place, f"{envelope.header.sender} is not a member")
        if envelope.header.run != evidence.run:
            raise CheckFailed(envelope.place, "holds an envelope of another run")
        if envelope.sent != (envelope.header.sender == envelope.place.party):
            raise CheckFailed(
                envelope.place, "sent in another party's name, or received from itself"
            )
        try:
            verify(VerifyKey(key.verify_key), envelope.digest, envelope.frames[1])
        except PeerError as broken:
            sender = envelope.header.sender
            raise CheckFailed(envelope.place, f"{sender}'s {broken}") from None
    for transcript in evidence.transcripts.values():
        _epochs_rise(transcript)


def _epochs_rise(transcript: Transcript) -> None:
    sent: dict[int, int] = {}
    for envelope in transcript.sent():
        sent.setdefault(envelope.place.index, envelope.header.epoch)
    epoch, heard = 0, dict[PartyId, int]()
    for record in transcript.records:
        if isinstance(record.input, Started):
            epoch += 1
            if record.input.epoch != epoch:
                raise CheckFailed(Place(transcript.party, record.index), "epochs do not rise by 1")
        if sent.get(record.index, epoch) != epoch:
            raise CheckFailed(Place(transcript.party, record.index), f"epoch is not {epoch}")
    for envelope in transcript.received():
        header = envelope.header
        if header.epoch < heard.get(header.sender, 0):
            text = f"{header.sender} sent this from an earlier process (its epoch fell)"
            raise CheckFailed(envelope.place, text)
        heard[header.sender] = header.epoch


def checkpoints_witnessed(evidence: Evidence) -> None:
    """Check 4: every journal head and root that anybody signed or co-signed is in the journals.

    An envelope states its sender's journal (head, size, root) and co-signs, with `seen`, the last
    envelope of each receiver. A journal that was cut, forked or rewritten contradicts at least one
    of these statements.
    """
    for transcript in evidence.transcripts.values():
        stated = [e for e in evidence.envelopes if e.header.sender == transcript.party]
        _heads_match(transcript, stated)
        _acknowledged_as_sent(evidence, transcript)


def _heads_match(transcript: Transcript, stated: Sequence[Envelope]) -> None:
    tree, head = Tree(), GENESIS
    heads = [(head, tree.root())]
    for _, _, digest in transcript.rows:
        tree.append(digest)
        heads.append((digest, tree.root()))
    for envelope in stated:
        header = envelope.header
        if header.size >= len(heads) or (header.head, header.root) != heads[header.size]:
            raise CheckFailed(
                envelope.place,
                f"{header.sender} signed a journal of {header.size} records that is not the one "
                f"shown, which has {len(heads) - 1}",
            )
        if envelope.sent and header.size != envelope.place.index:
            raise CheckFailed(envelope.place, f"was sent as record {header.size}")


def _acknowledged_as_sent(evidence: Evidence, transcript: Transcript) -> None:
    mine: dict[PartyId, dict[int, bytes]] = {}
    for envelope in transcript.sent():
        for delivery in envelope.header.to:
            if delivery.sequence:
                mine.setdefault(delivery.party, {})[delivery.sequence] = envelope.digest
    for envelope in evidence.envelopes:
        mark = envelope.delivery(transcript.party)
        sender = envelope.header.sender
        if mark is None or sender == transcript.party:
            continue
        known = mine.get(sender, {}).get(mark.ack, None if mark.ack else NO_PARENT)
        if known != mark.seen:
            raise CheckFailed(
                envelope.place,
                f"{sender} acknowledges an envelope {mark.ack} of {transcript.party} that differs "
                "from the one in its journal"
                f"{_fault(evidence, transcript.party, envelope, known)}",
            )


def _fault(evidence: Evidence, party: PartyId, false: Envelope, known: bytes | None) -> str:
    """Who is at fault for a false `seen`: its sender, or the party whose journal shows `known`.

    An honest party refuses such an envelope on arrival, so one that recorded it has changed its
    journal since. If the sender shows the envelope that it has seen under this number, the party
    signed two under it; if it shows none, it has lied. Without its journal this stays open.
    """
    sender, mark = false.header.sender, false.delivery(party)
    copies = [e for e in evidence.transcripts[party].envelopes if e.digest == false.digest]
    if any(evidence.is_signed(e) for e in copies):
        return f"; at fault: {party}"
    if sender not in evidence.transcripts or mark is None:
        return ""
    journal = evidence.transcripts[sender]
    named = [e for e in journal.received() if e.digest == mark.seen]
    if seen := [e for e in named if (d := e.delivery(sender)) and 0 < d.sequence == mark.ack]:
        return evidence.at_fault(party, *seen) if known is not None else ""
    is_own = any(e.digest == false.digest for e in journal.sent())
    return evidence.at_fault(sender, false) if is_own else ""


def both_ends_agree(evidence: Evidence) -> None:
    """Check 5: sequences have no gap, what one end received is what the other end sent, and an
    answer names the envelope it answers.
    """
    for transcript in evidence.transcripts.values():
        _answers_name_their_cause(transcript)
    sent = {p: _numbered(t, sent=True) for p, t in evidence.transcripts.items()}
    received = {p: _numbered(t, sent=False) for p, t in evidence.transcripts.items()}
    for party, streams in received.items():
        for peer, envelopes in streams.items():
            if peer not in sent:
                continue
            theirs = sent[peer].get(party, [])
            for number, envelope in enumerate(envelopes, start=1):
                if number > len(theirs) or theirs[number - 1].frames != envelope.frames:
                    raise CheckFailed(
                        envelope.place, f"is not envelope {number} in the journal of {peer}"
                    )
            taken = len(received[peer].get(party, []))
            acknowledged = max((d.ack for e in envelopes if (d := e.delivery(party))), default=0)
            if acknowledged > taken:
                raise CheckFailed(
                    Place(peer, len(evidence.transcripts[peer].rows)),
                    f"{peer} acknowledged {acknowledged} envelopes of {party} and shows {taken}",
                )


def _answers_name_their_cause(transcript: Transcript) -> None:
    causes = {e.place.index: e.digest for e in transcript.received()}
    for envelope in transcript.sent():
        if envelope.header.parent != causes.get(envelope.place.index, NO_PARENT):
            raise CheckFailed(envelope.place, "answers an envelope that is not the one that came")


def _numbered(transcript: Transcript, *, sent: bool) -> dict[PartyId, list[Envelope]]:
    """The envelopes of each stream in order; CheckFailed at a gap or a repeated number."""
    streams: dict[PartyId, list[Envelope]] = {}
    for envelope in transcript.sent() if sent else transcript.received():
        header = envelope.header
        if sent:
            to = dict.fromkeys(
                d.party for d in header.to
            )  # check 6 reports one that is named twice
            ends = [(party, d.sequence) for party in to if (d := envelope.delivery(party))]
        else:
            mine = envelope.delivery(transcript.party)
            ends = [(header.sender, mine.sequence if mine else -1)]
        for peer, sequence in ends:
            stream = streams.setdefault(peer, [])
            stream.append(envelope)
            if sequence != len(stream):
                raise CheckFailed(
                    envelope.place, f"is number {sequence} with {peer}, expected {len(stream)}"
                )
    return streams
