"""A party's policy: what its operator allows, written in TOML.

It owns every rule and its bounds; it reads no file and judges nothing. It never leaves the machine.
"""

from __future__ import annotations

from typing import Annotated, Literal, get_args

from pydantic import Field

from schemas.base import Positive, Strict
from schemas.config import AlignmentMethod
from schemas.ids import MAX_PASSIVES, DatasetId, PartyId
from schemas.method_facts import Noise, Scores
from schemas.methods import Guarantee
from schemas.privacy import MAX_SLOTS, Budget

PureEpsilon = Annotated[float, Field(gt=0.0, le=100.0)]


class PartyPolicy(Strict):
    """What a party allows; local, never sent."""

    dataset: DatasetId  # the ledger's key: the same entities keep the same name for ever
    # Data sets that share some ids with this one but have a budget of their own.
    budget_apart_from: Annotated[tuple[DatasetId, ...], Field(max_length=256)] = ()
    lifetime: Budget
    # Pure epsilons within the lifetime cap, for bounded noise; the rest of the cap is for Gaussian
    # noise, whether the slots are used or not (docs/bounded-noise.md).
    pure_slots: Annotated[tuple[PureEpsilon, ...], Field(max_length=MAX_SLOTS)] = ()
    noises: Annotated[tuple[Noise, ...], Field(min_length=1, max_length=2)] = ("gaussian",)
    run_epsilon_max: Positive
    guarantees: Annotated[tuple[Guarantee, ...], Field(min_length=1, max_length=3)] = ("sound",)
    rows_min: Annotated[int, Field(ge=1, le=10**9)] = 100
    peers: Annotated[tuple[PartyId, ...], Field(max_length=MAX_PASSIVES + 1)] = ()
    # Methods of entity resolution this party takes part in (docs/entity-resolution.md).
    alignment_methods: Annotated[tuple[AlignmentMethod, ...], Field(min_length=1, max_length=2)] = (
        get_args(AlignmentMethod)
    )
    # What happens to a proposed run that breaks no rule: ask the operator, or accept it.
    proposals: Literal["ask", "accept"] = "ask"
    # Refused proposals of one active party since its last completed run, after which the policy
    # gives no more reasons: the operator answers.
    refusals_max: Annotated[int, Field(ge=0, le=10**6)] = 20
    learned_constants: bool = False  # preprocessing constants fitted on the private data
    # Most rows, over all trainings of the data set, whose exact scores from private weights may
    # leave; those rows are disclosed. A row counts in every training that discloses it.
    disclosed_rows_max: Annotated[int, Field(ge=0, le=10**9)] = 0
    exact_scoring: bool = False  # un-noised scores in a prediction: booked as an infinite cost
    # What a score of private weights may reveal about the scored person (docs/scored-people.md):
    # nothing, the score itself, or a noised score.
    scoring: Literal["none", Scores] = "none"
    # How many queries may ask for one person, over all sessions of this party.
    queries_max: Annotated[int, Field(ge=1, le=10**9)] = 100
    # How many models may score one person; every training makes a new model, and so does every
    # other step of coarse scores.
    models_max: Annotated[int, Field(ge=1, le=10**6)] = 1
    # The smallest step of disclosed scores, in deviations of a score; a manifest may use larger
    # steps.
    coarsen: Annotated[float, Field(ge=0.0, le=64.0)] = 0.0
