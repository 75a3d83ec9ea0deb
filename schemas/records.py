"""A journal record is one step: what came in, what went out, and the hash that links it.

It owns the shape of the stored step; it knows no storage and no role. Nothing private is in a
record: inputs are what others sent, effects are what left. Weights and losses are recomputed by
folding the inputs, never stored here.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from schemas.base import Closed, Count, Digest, Signature
from schemas.envelope import MAX_ARRAY_BYTES, MAX_FRAMES
from schemas.ids import MAX_PASSIVES, Epoch, PartyId
from schemas.privacy import LedgerHead

Frame = Annotated[bytes, Field(max_length=MAX_ARRAY_BYTES)]
Frames = Annotated[tuple[Frame, ...], Field(min_length=1, max_length=MAX_FRAMES)]
JOURNAL_FORMAT = 1
GENESIS = bytes(32)


class Remembered(Closed):
    """The newest ledger head this party has seen of a peer."""

    party: PartyId
    head: LedgerHead
    signature: Signature  # that peer's


class LedgerStanding(Closed):
    """What a party's own ledger says at one moment."""

    head: LedgerHead
    mu2_units_free: Count
    remembered: Annotated[tuple[Remembered, ...], Field(max_length=MAX_PASSIVES + 1)] = ()


class StartedInput(Closed):
    """The process started."""

    kind: Literal["started"] = "started"
    epoch: Epoch
    standing: LedgerStanding


class LedgerInput(Closed):
    """The ledger's standing, as the step before had asked for."""

    kind: Literal["ledger"] = "ledger"
    standing: LedgerStanding


class EnvelopeInput(Closed):
    """A peer's envelope, the frames as they came."""

    kind: Literal["envelope"] = "envelope"
    frames: Frames


class TimerInput(Closed):
    """A timer that this role had armed has run out."""

    kind: Literal["timer"] = "timer"
    name: Annotated[str, Field(max_length=64)]


class OperatorInput(Closed):
    """The operator asks this party to leave the run."""

    kind: Literal["operator"] = "operator"
    order: Literal["withdraw"]


StepInput = Annotated[
    StartedInput | LedgerInput | EnvelopeInput | TimerInput | OperatorInput,
    Field(discriminator="kind"),
]


class SentEffect(Closed):
    """An envelope this step sent, the frames as signed."""

    kind: Literal["sent"] = "sent"
    frames: Frames


class ArmedEffect(Closed):
    """A timer this step armed."""

    kind: Literal["armed"] = "armed"
    name: Annotated[str, Field(max_length=64)]
    delay_ms: Count


class ReservedEffect(Closed):
    """Budget this step reserved in the ledger."""

    kind: Literal["reserved"] = "reserved"
    mu2_units: Count
    tau_units: Count


class LedgerEffect(Closed):
    """What this step had the ledger do besides booking: read, remember a peer's head, check own."""

    kind: Literal["ledger"] = "ledger"
    order: Literal["read", "remember", "check"]
    party: PartyId | None = None
    head: LedgerHead | None = None


class FinishedEffect(Closed):
    """This step ended the role."""

    kind: Literal["finished"] = "finished"
    outcome: Annotated[str, Field(max_length=64)]


class RefusedEffect(Closed):
    """The input was not a legal move; the state is untouched."""

    kind: Literal["refused"] = "refused"
    reason: Annotated[str, Field(max_length=500)]


StepEffect = Annotated[
    SentEffect | ArmedEffect | ReservedEffect | LedgerEffect | FinishedEffect | RefusedEffect,
    Field(discriminator="kind"),
]


class StepRecord(Closed):
    """One step as it is hashed and stored."""

    index: Count
    previous: Digest
    input: StepInput
    effects: Annotated[tuple[StepEffect, ...], Field(max_length=4096)]
