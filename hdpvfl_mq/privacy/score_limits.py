"""The limits of a policy on scoring one person, and which people of a query are beyond them.

It owns the rules and their reasons; it is pure and knows no file and no id. The counts come from
the account of scored people (scored_people.py).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hdpvfl_mq.arrays.packed_marks import pack_marks, unpack_marks
from schemas.privacy import PeopleScored

Hashes = NDArray[np.int64]


@dataclass(frozen=True)
class Limits:
    """The limits of a policy for one person, over all runs."""

    queries_max: int
    models_max: int
    mu2_units_max: int  # what noised scores may cost: the rest of the lifetime cap


@dataclass(frozen=True)
class Asked:
    """One query: the ids of the people, and what scores them.

    `model` is the weights and the step that scores are rounded to: the same score in other steps
    reveals as much more as another model does.
    """

    run: str
    query: int
    ids: list[bytes]
    places: bytes
    model: bytes
    mu2_units: int = 0


@dataclass(frozen=True)
class Counts:
    """For each person: queries so far, models after this query, and mu^2 so far."""

    queries: NDArray[np.int64]
    models: NDArray[np.int64]
    cost: NDArray[np.int64]


def judged(counts: Counts, mu2_units: int, limits: Limits) -> tuple[NDArray[np.bool_], str]:
    """Who is refused by a query that costs `mu2_units` a person, and why."""
    often, other = counts.queries >= limits.queries_max, counts.models > limits.models_max
    dear = (mu2_units > 0) & (counts.cost + mu2_units > limits.mu2_units_max)
    refused = often | other | dear
    reasons = []
    if often.any():
        reasons.append(
            f"policy.queries_max = {limits.queries_max}: {often.sum()} of {len(refused)} people "
            "have been asked for that often"
        )
    if (other & ~often).any():
        reasons.append(
            f"policy.models_max = {limits.models_max}: {(other & ~often).sum()} of "
            f"{len(refused)} people have been scored with that many other models or steps"
        )
    if (dear & ~often & ~other).any():
        reasons.append(
            f"policy.lifetime: {(dear & ~often & ~other).sum()} of {len(refused)} people have "
            "not enough left for a noised score"
        )
    return refused, "; ".join(reasons)


def is_about(known: PeopleScored, people: Hashes) -> bool:
    """Whether an entry granted its query to these people, but for those it refused."""
    granted = people[~unpack_marks(known.refused, len(people))]
    return bool(granted.astype("<i8").tobytes() == known.people)


def nobody(known: PeopleScored, digest: bytes, count: int) -> PeopleScored:
    """The answer to another query under a number that an entry has: nobody, and no entry."""
    return PeopleScored(
        run=known.run,
        query=known.query,
        model=known.model,
        asked=digest,
        people=b"",
        refused=pack_marks(np.ones(count, dtype=np.bool_)),
        reason=f"query {known.query} of {known.run} has asked for others before",
        mu2_units=0,
    )
