"""Budgets, spend events and releases: what a party promises, what it spends, what may leave.

It owns the shapes and the integer units of the accounts; it knows no sensitivity, noise or store.

Rules for evolving these models:
- A stored event means the same for ever. Fields are added with a default that is the old meaning,
  never renamed, given another unit or removed.
- Units never change. A finer account is a new field next to the old one.
- A new mechanism is a new literal; a reader that does not know it must refuse, never skip.
- Amounts are integers rounded up when they are made, so that no later sum can round down.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self, get_args

from pydantic import Field, model_validator

from schemas.base import INT64_MAX, Count, Digest, Signature, Strict
from schemas.ids import DatasetId, PartyId, ReleaseId, Round, RunId
from schemas.tensor import Tensor

MU2_UNIT_BITS = 40
TAU_UNIT_BITS = 140
PURE_UNIT_BITS = 40
# The range of a number that a receiver multiplies by.
SCALE_MIN, SCALE_MAX = 2.0**-20, 2.0**40
MAX_SLOTS = 64
MAX_PURE_RELEASES = 64  # of one party in one run

# Mechanisms for one bounded number, each with a pure epsilon.
BoundedKind = Literal["randomised_response", "piecewise", "two_point"]
_BOUNDED = frozenset(get_args(BoundedKind))
# A grid is 2**exponent; no plan uses an exponent beyond these.
Exponent = Annotated[int, Field(ge=-64, le=64)]


class Budget(Strict):
    """An (epsilon, delta) pair: a cap for a data set, or the target of a run."""

    epsilon: Annotated[float, Field(gt=0.0, le=1e3)]
    delta: Annotated[float, Field(ge=1e-12, lt=1.0)]


class SpendEvent(Strict):
    """What one release costs; `exact` costs infinitely much and its amounts are zero.

    A bounded mechanism costs a pure epsilon, `pure_units` times 2^-40; it never adds to mu^2.
    `disclosed` are exact scores of `disclosed_rows` agreed rows from private weights: those rows
    count as disclosed, for all others the release is free.
    """

    release_id: ReleaseId
    round: Round
    mechanism: Literal["lattice_gaussian", "exact", "disclosed", BoundedKind]
    mu2_units: Count
    tau_units: Count
    pure_units: Count = 0
    disclosed_rows: Count = 0

    @model_validator(mode="after")
    def _one_currency(self) -> Self:
        bounded = self.mechanism in _BOUNDED
        if bounded != (self.pure_units > 0) or (bounded and self.mu2_units + self.tau_units):
            raise ValueError("a bounded mechanism costs a pure epsilon, and nothing else does")
        return self


class Release(Strict):
    """Values that may leave a party; only the mechanism makes one.

    A receiver multiplies by `scale`, a number that follows from releases already booked.
    """

    release_id: ReleaseId
    tensor: Tensor
    exponent: Exponent
    noise_std: Annotated[float, Field(ge=0.0, le=1e18)]
    scale: Annotated[float, Field(ge=SCALE_MIN, le=SCALE_MAX)] = 1.0
    event: SpendEvent


class LedgerHead(Strict):
    """How far a ledger has come: the number of its entries and the hash of the last."""

    sequence: Count
    digest: Digest


class SecretFixed(Strict):
    """From this entry on, entries are commitments under the secret that matches `check`.

    `mu2_units_scored` is the most that noised scores cost one person under the previous secret.
    """

    kind: Literal["secret"] = "secret"
    check: Digest
    mu2_units_scored: Count = 0


class CapFixed(Strict):
    """The lifetime cap of one data set: a budget and the pure slots within it.

    The part of the budget outside the slots is the cap on mu^2, whether slots are used or not.
    """

    kind: Literal["cap"] = "cap"
    dataset: DatasetId
    cap: Budget
    pure_slots: Annotated[tuple[Count, ...], Field(max_length=MAX_SLOTS)] = ()  # in pure units


class BudgetsApart(Strict):
    """The operator states that two data sets have a budget each although they share ids."""

    kind: Literal["apart"] = "apart"
    dataset: DatasetId
    other: DatasetId
    shared_percent: Annotated[int, Field(ge=0, le=100)]  # of the smaller one's, estimated


class SlotShare(Strict):
    """A part of a pure slot, for one release."""

    slot: Annotated[int, Field(ge=0, lt=MAX_SLOTS)]
    units: Annotated[int, Field(gt=0, le=INT64_MAX)]


class RunReserved(Strict):
    """The most that one run may spend on one data set; `exact` if the policy allows exact values.

    `fingerprint` is "keyed:" and a hash of the rows under the ledger's secret: it shows a reader of
    the ledger that the same rows came back, and nothing else. Without the prefix it is of format 1:
    an unkeyed hash, with which a guess about one row can be tested. `disclosed_rows` is how many
    rows the run may disclose.
    """

    kind: Literal["reserve"] = "reserve"
    dataset: DatasetId
    run: RunId
    mu2_units: Count
    tau_units: Count
    exact: bool
    fingerprint: Annotated[str, Field(max_length=128)]
    pure: Annotated[tuple[SlotShare, ...], Field(max_length=MAX_PURE_RELEASES)] = ()
    disclosed_rows: Count = 0


class ReleaseBooked(Strict):
    """One release charged to one data set, with the digest of its only payload.

    `keyed` if the digest is under the ledger's secret, as for an exact payload, which no noise
    hides. `slot` is the pure slot that pays for a bounded release.
    """

    kind: Literal["spend"] = "spend"
    dataset: DatasetId
    run: RunId
    event: SpendEvent
    digest: Digest
    keyed: bool = False
    slot: Annotated[int, Field(ge=0, lt=MAX_SLOTS)] | None = None


class RunSettled(Strict):
    """The run is over; its unspent reserve is free, what it spent stays spent."""

    kind: Literal["close"] = "close"
    dataset: DatasetId
    run: RunId


class PeopleCounted(Strict):
    """How far the account of scored people has come; a co-signature on a later head covers it."""

    kind: Literal["people"] = "people"
    head: LedgerHead


LedgerEntry = Annotated[
    SecretFixed
    | CapFixed
    | BudgetsApart
    | RunReserved
    | ReleaseBooked
    | RunSettled
    | PeopleCounted,
    Field(discriminator="kind"),
]


class PeopleScored(Strict):
    """One query charged to the people whose scores leave; people and model are keyed hashes.

    `refused` has a bit for each place that was asked for; it is empty if all were granted.
    """

    run: RunId
    query: Count
    model: Annotated[bytes, Field(min_length=8, max_length=8)]
    asked: Digest  # of the places in the query
    people: Annotated[bytes, Field(max_length=2**19, repr=False)]  # eight bytes each
    refused: Annotated[bytes, Field(max_length=2**13)] = b""
    reason: Annotated[str, Field(max_length=500)] = ""
    mu2_units: Count = 0  # cost of a noised score for each person


class Cosignature(Strict):
    """A peer's signature of a head of this ledger."""

    peer: PartyId
    head: LedgerHead
    signature: Signature
