"""What an auditor has: journals as stored, public keys, ledgers. Nothing in it is trusted.

It owns the shapes that the checks read and how stored bytes become them; it judges nothing and
opens no file. What cannot be decoded is kept as a flaw with its place, for the check that reports
it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property

from nacl.signing import VerifyKey

from hdpvfl_mq.errors import IntegrityError, OperatorError, PeerError
from hdpvfl_mq.journal import chain
from hdpvfl_mq.methods import plan_run
from hdpvfl_mq.methods.run_plan import RunPlan
from hdpvfl_mq.wire.codec import Frames, decode_body, decode_header
from hdpvfl_mq.wire.parts import PartList, is_in_parts
from hdpvfl_mq.wire.signing import frames_digest, verify
from schemas.config import RunManifest
from schemas.envelope import Delivery, Header
from schemas.ids import PartyId, RoleName
from schemas.messages import Aligned, Message, Residual, RunOffer, ScoreShare
from schemas.records import Acknowledged, EnvelopeReceived, EnvelopeSent, Refused, StepRecord

Joined = Callable[[PartList], memoryview]
StoredRecord = tuple[int, bytes, bytes]  # index, bytes, digest
# Sequence, digest, release id, body, opening.
StoredEntry = tuple[int, bytes, str | None, bytes, bytes | None]


@dataclass(frozen=True)
class Key:
    """A member of the run and the key its envelopes must verify with."""

    role: RoleName
    verify_key: bytes


@dataclass(frozen=True, order=True)
class Place:
    """A place in the evidence: a party's journal and a record in it."""

    party: PartyId
    index: int

    def __str__(self) -> str:
        return f"{self.party}, record {self.index}"


@dataclass(frozen=True)
class Envelope:
    """One signed envelope found in a journal; `message` is None if its body is not valid."""

    place: Place
    sent: bool  # whether the owner of that journal sent it
    frames: Frames = field(repr=False)
    header: Header
    message: Message | None
    flaw: str = ""

    @cached_property
    def digest(self) -> bytes:
        """The digest that is signed and that names this envelope."""
        return frames_digest(self.frames)

    def delivery(self, party: PartyId) -> Delivery | None:
        """The part of the header that is addressed to one party."""
        return next((d for d in self.header.to if d.party == party), None)


def no_parts(parts: PartList) -> memoryview:
    """For journals without large arrays."""
    raise IntegrityError(f"none of {len(parts)} parts is there")


@dataclass(frozen=True)
class Transcript:
    """One party's journal."""

    party: PartyId
    meta: Mapping[str, str]
    rows: tuple[StoredRecord, ...] = field(repr=False)
    joined: Joined = field(default=no_parts, repr=False)  # whole arrays of the stored parts

    @cached_property
    def _decoded(self) -> tuple[list[StepRecord], list[Envelope], list[tuple[Place, str]]]:
        records: list[StepRecord] = []
        envelopes: list[Envelope] = []
        flaws: list[tuple[Place, str]] = []
        for index, stored, _ in self.rows:
            place = Place(self.party, index)
            try:
                records.append(record := chain.decode(stored, index))
            except IntegrityError as broken:
                flaws.append((place, str(broken)))
                continue
            is_refused = any(isinstance(effect, Refused) for effect in record.effects)
            for sent, frames in _frames_of(record):
                try:
                    if is_refused and not sent and is_in_parts(frames):
                        # Its receiver asked for no part, or found the list to be false.
                        refused = "its parts were refused by the receiver"
                        header = decode_header(frames)
                        envelopes.append(Envelope(place, sent, frames, header, None, refused))
                        continue
                    envelopes.append(_envelope(place, sent, frames, self.array_of(frames)))
                except (PeerError, IntegrityError) as broken:
                    flaws.append((place, str(broken)))
        return records, envelopes, flaws

    def array_of(self, frames: Frames) -> memoryview | None:
        """The whole array of an envelope in parts; IntegrityError if a part is missing or wrong."""
        return self.joined(PartList.of_frames(frames)) if is_in_parts(frames) else None

    @property
    def records(self) -> list[StepRecord]:
        """Every record that can be decoded."""
        return self._decoded[0]

    @property
    def envelopes(self) -> list[Envelope]:
        """Every envelope with a readable header, received or sent, in order."""
        return self._decoded[1]

    @property
    def flaws(self) -> list[tuple[Place, str]]:
        """Records and headers that cannot be decoded."""
        return self._decoded[2]

    def sent(self) -> Iterator[Envelope]:
        """Envelopes the owner sent."""
        return (e for e in self.envelopes if e.sent)

    def received(self) -> Iterator[Envelope]:
        """Envelopes the owner received, except bare acknowledgements."""
        return (e for e in self.envelopes if not e.sent and e.header.kind != "ack")


@dataclass(frozen=True)
class Evidence:
    """Everything an audit reads."""

    run: str
    keys: Mapping[PartyId, Key]
    transcripts: Mapping[PartyId, Transcript]
    ledgers: Mapping[PartyId, tuple[StoredEntry, ...]] = field(default_factory=dict)

    @cached_property
    def envelopes(self) -> tuple[Envelope, ...]:
        """All envelopes of all journals; an envelope that both ends recorded appears twice."""
        return tuple(e for t in self.transcripts.values() for e in t.envelopes)

    @cached_property
    def said(self) -> tuple[Envelope, ...]:
        """Each envelope once: the sender's copy if its journal is shown, else a receiver's.

        Two different envelopes with one sequence number are both included.
        """
        found: dict[bytes, Envelope] = {}
        for envelope in sorted(self.envelopes, key=lambda e: not e.sent):
            found.setdefault(envelope.digest, envelope)
        return tuple(found.values())

    @cached_property
    def manifest(self) -> RunManifest | None:
        """The manifest of the first recorded offer."""
        for envelope in self.said:
            if isinstance(envelope.message, RunOffer):
                return envelope.message.manifest
        return None

    @cached_property
    def refused_values(self) -> frozenset[bytes]:
        """Digests of releases whose receivers have recorded that their values are wrong."""
        reasons = {
            (party, record.index): effect.reason
            for party, transcript in self.transcripts.items()
            for record in transcript.records
            for effect in record.effects
            if isinstance(effect, Refused)
        }
        taken = (e for t in self.transcripts.values() for e in t.received())
        return frozenset(
            envelope.digest
            for envelope in taken
            if isinstance(envelope.message, ScoreShare | Residual)
            and reasons.get((envelope.place.party, envelope.place.index), "").startswith(
                f"{envelope.message.release.release_id}: "
            )
        )

    @cached_property
    def plan(self) -> RunPlan | None:
        """The plan, derived again from manifest and row count; None before rows were aligned.

        A liar may report a count from which no plan follows, or one that takes hours to plan,
        before the others report theirs: the count of most parties is tried first.
        """
        if (manifest := self.manifest) is None:
            return None
        counted = [(e.header.sender, e.message) for e in self.said]
        stated = dict.fromkeys((p, m.rows) for p, m in counted if isinstance(m, Aligned))
        for rows, _ in Counter(rows for _, rows in stated).most_common():
            with suppress(OperatorError):
                return plan_run(manifest, rows)
        return None

    def has_counted(self, party: PartyId) -> bool:
        """Whether a party has itself reported the row count of the plan.

        A peer that reports another count early makes this plan differ from the one for which an
        honest party has reserved. Nobody releases before that report.
        """
        return self.plan is not None and any(
            isinstance(said.message, Aligned) and said.message.rows == self.plan.rows
            for said in self.said
            if said.header.sender == party
        )

    def is_signed(self, envelope: Envelope) -> bool:
        """Whether its sender has signed an envelope; check 3 reports one that is not."""
        key = self.keys.get(envelope.header.sender)
        if key is None or envelope.header.run != self.run:
            return False
        try:
            verify(VerifyKey(key.verify_key), envelope.digest, envelope.frames[1])
        except PeerError:
            return False
        return True

    def at_fault(self, party: PartyId, *shown: Envelope) -> str:
        """The words that name a party, if it has signed everything that shows its fault.

        Anybody can write an envelope of another party into a journal of its own.
        """
        signed = all(e.header.sender == party and self.is_signed(e) for e in shown)
        return f"; at fault: {party}" if signed else ""

    def releases(self) -> Iterator[tuple[Envelope, ScoreShare | Residual]]:
        """Every release that left in a round, with its envelope."""
        for envelope in self.said:
            if isinstance(envelope.message, ScoreShare | Residual):
                yield envelope, envelope.message


def _frames_of(record: StepRecord) -> Iterator[tuple[bool, Frames]]:
    if isinstance(record.input, EnvelopeReceived | Acknowledged):
        yield False, record.input.frames
    for effect in record.effects:
        if isinstance(effect, EnvelopeSent):
            yield True, effect.frames


def _envelope(place: Place, sent: bool, frames: Frames, array: memoryview | None) -> Envelope:
    header = decode_header(frames)
    try:
        return Envelope(place, sent, frames, header, decode_body(header, frames, array))
    except PeerError as broken:
        return Envelope(place, sent, frames, header, None, str(broken))
