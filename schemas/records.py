"""A journal record is one step: what came in, what went out, and the hash that links it.

It owns the inputs and effects of every role as they are stored. Roles work with the same form; only
envelopes are stored as their bytes (machine.Received and machine.Send are their decoded forms).
Nothing private is in a record: inputs are what others sent, effects are what left. Weights and
losses are recomputed by folding the inputs, never stored here.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field

from schemas.base import TEXT_MAX, Count, Digest, Extended, Signature, Strict, printable
from schemas.commands import OperatorCommand
from schemas.envelope import MAX_ARRAY_BYTES, MAX_FRAMES
from schemas.federation import Forget, Meet, SignWith
from schemas.ids import MAX_PASSIVES, OLDEST_VERSION, Epoch, PartyId, Version
from schemas.privacy import MAX_PURE_RELEASES, MAX_SLOTS, LedgerHead, Release
from schemas.tensor import Tensor

Frame = Annotated[bytes, Field(max_length=MAX_ARRAY_BYTES)]
Frames = Annotated[tuple[Frame, ...], Field(min_length=1, max_length=MAX_FRAMES)]
TimerName = Annotated[str, Field(max_length=96)]
# Format 2: methods are values in the manifest, and a record holds all of an effect.
JOURNAL_FORMAT = 2
GENESIS = bytes(32)


class Remembered(Strict):
    """The newest ledger head of a peer that this party has seen."""

    party: PartyId
    head: LedgerHead
    signature: Signature  # that peer's


class LedgerStanding(Strict):
    """What a party's own ledger says at one moment."""

    head: LedgerHead
    mu2_units_free: Count
    is_reserved: bool = False  # whether this run has its reserve
    slots_free: Annotated[tuple[Count, ...], Field(max_length=MAX_SLOTS)] = ()  # pure units left
    remembered: Annotated[tuple[Remembered, ...], Field(max_length=MAX_PASSIVES + 1)] = ()


class Started(Extended):
    """The process has started; epochs rise by one each time."""

    later: ClassVar[tuple[str, ...]] = ("speaks",)

    kind: Literal["started"] = "started"
    epoch: Epoch
    standing: LedgerStanding
    speaks: Version = OLDEST_VERSION  # the newest version of the protocol that the process speaks


class LedgerRead(Strict):
    """The ledger's standing, which the previous step asked for."""

    kind: Literal["ledger"] = "ledger"
    standing: LedgerStanding


class Charged(Strict):
    """What the account of scored people grants of a query, as the previous step asked."""

    kind: Literal["charged"] = "charged"
    query: Count
    refused: Annotated[bytes, Field(max_length=2**13)]  # a bit per place; empty: all granted
    reason: Annotated[str, Field(max_length=TEXT_MAX), AfterValidator(printable)]
    head: LedgerHead  # of the account


class EnvelopeReceived(Strict):
    """A peer's envelope, the frames as received."""

    kind: Literal["envelope"] = "envelope"
    frames: Frames


class TimerFired(Strict):
    """A timer that this role armed has run out."""

    kind: Literal["timer"] = "timer"
    timer: TimerName


class OperatorRequest(Strict):
    """A request from the operator."""

    kind: Literal["operator"] = "operator"
    request: Literal["withdraw", "close"]


class Acknowledged(Strict):
    """A peer's bare acknowledgement, the frames as received: it co-signs what the peer got."""

    kind: Literal["acknowledged"] = "acknowledged"
    frames: Frames


class TurnedAway(Strict):
    """Frames that were refused on arrival, kept as evidence."""

    kind: Literal["turned_away"] = "turned_away"
    reason: Annotated[str, Field(max_length=500)]
    digest: Digest
    party: PartyId | None = None  # who signed them, if that makes it this party's offence


class Withheld(Strict):
    """A peer's envelopes or acknowledgements are missing; the peer or the broker withholds them."""

    kind: Literal["withheld"] = "withheld"
    party: PartyId
    reason: Annotated[str, Field(max_length=500)]


Noted = Acknowledged | TurnedAway | Withheld  # recorded, but no message for the role
RecordedInput = Annotated[
    Started
    | LedgerRead
    | Charged
    | EnvelopeReceived
    | TimerFired
    | OperatorRequest
    | OperatorCommand
    | Acknowledged
    | TurnedAway
    | Withheld,
    Field(discriminator="kind"),
]


class EnvelopeSent(Strict):
    """An envelope that this step sent, the frames as signed."""

    kind: Literal["sent"] = "sent"
    frames: Frames


class Arm(Strict):
    """Ask for `TimerFired(timer)` after a delay; arming it again restarts it."""

    kind: Literal["arm"] = "arm"
    timer: TimerName
    delay_ms: Count


class Reserve(Strict):
    """Reserve budget in the ledger before the first release; `exact` records a disclosure.

    `pure_units` has one amount for each bounded release of the run, ascending.
    """

    kind: Literal["reserve"] = "reserve"
    mu2_units: Count
    tau_units: Count
    exact: bool
    pure_units: Annotated[tuple[Count, ...], Field(max_length=MAX_PURE_RELEASES)] = ()


class Book(Strict):
    """Charge a release that stays inside this party, such as the statistics it fits a model to."""

    kind: Literal["book"] = "book"
    release: Release


class Charge(Strict):
    """Charge the people at these places to the account of scored people; `Charged` answers."""

    kind: Literal["charge"] = "charge"
    query: Count
    places: Tensor


class ReadLedger(Strict):
    """Ask for `LedgerRead` once all releases of this step are booked."""

    kind: Literal["read_ledger"] = "read_ledger"


class RememberHead(Strict):
    """Store the newest ledger head of a peer and its signature, beyond this run."""

    kind: Literal["remember_head"] = "remember_head"
    party: PartyId
    head: LedgerHead
    signature: Signature


class CheckLedger(Strict):
    """Stop with IntegrityError if this ledger is older than a head a peer co-signed."""

    kind: Literal["check_ledger"] = "check_ledger"
    party: PartyId
    head: LedgerHead
    signature: Signature


class Finish(Strict):
    """This role has nothing more to do."""

    kind: Literal["finish"] = "finish"
    outcome: Annotated[str, Field(max_length=64)]


class Refused(Strict):
    """The input was not a legal move; the state is unchanged."""

    kind: Literal["refused"] = "refused"
    reason: Annotated[str, Field(max_length=TEXT_MAX), AfterValidator(printable)]


RecordedEffect = Annotated[
    EnvelopeSent
    | Arm
    | Reserve
    | Book
    | Charge
    | ReadLedger
    | RememberHead
    | CheckLedger
    | Meet
    | Forget
    | SignWith
    | Finish
    | Refused,
    Field(discriminator="kind"),
]


class StepRecord(Strict):
    """One step in the form in which it is hashed and stored."""

    index: Count
    previous: Digest
    input: RecordedInput
    effects: Annotated[tuple[RecordedEffect, ...], Field(max_length=4096)]
