"""A journal record is one step: what came in, what went out, and the hash that links it.

It owns the shape of the stored step; it knows no storage and no role. Nothing private is in a
record: inputs are what others sent, effects are what left. Weights and losses are recomputed by
folding the inputs, never stored here.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from schemas.base import Closed, Count, Digest
from schemas.ids import Epoch

JOURNAL_FORMAT = 1
GENESIS = bytes(32)


class StartedInput(Closed):
    """The process started; `ledger_*` is what its own ledger said at that moment."""

    kind: Literal["started"] = "started"
    epoch: Epoch
    ledger_index: Count
    ledger_digest: Digest
    mu2_units_free: Count
    tau_units_free: Count


class EnvelopeInput(Closed):
    """A peer's envelope, the frames as they came."""

    kind: Literal["envelope"] = "envelope"
    frames: Annotated[tuple[bytes, ...], Field(min_length=1, max_length=8)]


class TimerInput(Closed):
    """A timer that this role had armed has run out."""

    kind: Literal["timer"] = "timer"
    name: Annotated[str, Field(max_length=64)]


class OperatorInput(Closed):
    """The operator asks this party to leave the run."""

    kind: Literal["operator"] = "operator"
    order: Literal["withdraw"]


StepInput = Annotated[
    StartedInput | EnvelopeInput | TimerInput | OperatorInput, Field(discriminator="kind")
]


class SentEffect(Closed):
    """An envelope this step sent, the frames as signed."""

    kind: Literal["sent"] = "sent"
    frames: Annotated[tuple[bytes, ...], Field(min_length=1, max_length=8)]


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


class FinishedEffect(Closed):
    """This step ended the role."""

    kind: Literal["finished"] = "finished"
    outcome: Annotated[str, Field(max_length=64)]


class RefusedEffect(Closed):
    """The input was not a legal move; the state is untouched."""

    kind: Literal["refused"] = "refused"
    reason: Annotated[str, Field(max_length=500)]


StepEffect = Annotated[
    SentEffect | ArmedEffect | ReservedEffect | FinishedEffect | RefusedEffect,
    Field(discriminator="kind"),
]


class StepRecord(Closed):
    """One step as it is hashed and stored."""

    index: Count
    previous: Digest
    input: StepInput
    effects: Annotated[tuple[StepEffect, ...], Field(max_length=4096)]
