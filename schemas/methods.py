"""What a round computes, as a value: one variant for each method, each with its own fields.

It owns the public constants of every method and their limits; it knows no formula. A manifest has
exactly one variant, identified by `kind`. Plan, bound and fit of a method are in hdpvfl_mq/methods,
both sides of its round in parties/rounds.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from schemas.base import Closed, Fraction, NonNegative, Positive
from schemas.ids import RunId

Share = Annotated[float, Field(gt=0.0, lt=1.0)]
Guarantee = Literal["sound", "paper", "none"]
Noise = Literal["gaussian", "bounded"]
Absence = Literal["wait", "last", "nothing"]
Scores = Literal["disclosed", "noised"]


class ActiveSide(Closed):
    """The active party's optimiser."""

    step_size: Positive = 0.1
    weight_norm: Positive = 1.0  # k, radius of the ball that holds its weights
    local_steps: Annotated[int, Field(ge=1, le=100)] = 1


class PassiveSide(Closed):
    """Every passive party's optimiser."""

    step_size: Positive = 0.1
    weight_norm: Positive = 1.0
    received_clip: Positive | None = None  # C in units of the active party's noise_std


class EarlyStop(Closed):
    """Stop when the released residuals of `patience` epochs show no fall in their energy."""

    patience: Annotated[int, Field(ge=1, le=1000)] = 2
    tolerance: Annotated[float, Field(ge=0.0, lt=1.0)] = 1e-3


class Descent(Closed):
    """Gradient descent as in the paper: many rounds of shares and residuals."""

    kind: Literal["descent"] = "descent"
    epochs: Annotated[int, Field(ge=1, le=1_000_000)] = 10
    batch_rows: Annotated[int, Field(ge=1, le=10**9)] = 3200
    step_decay: NonNegative = 0.0
    average_from: Fraction = 1.0  # share of the rounds after which iterates are averaged
    early_stop: EarlyStop | None = None
    active: ActiveSide = ActiveSide()
    passive: PassiveSide = PassiveSide()

    def check(self, *, guarantee: Guarantee, intercept: bool, absence: Absence) -> None:
        """ValueError if a manifest with these settings cannot use this method."""
        if guarantee == "sound" and self.passive.received_clip is None:
            raise ValueError("guarantee sound needs method.passive.received_clip (C, in noise_std)")


class PrivateModel(Closed):
    """Weights from noised statistics, private for ever (docs/private-model.md).

    Scores leave in units of their own deviation, which follows from the statistics.
    """

    kind: Literal["private_model"] = "private_model"
    # C = 1 + this many noise_std, in units of half the range of labels.
    received_clip: Annotated[float, Field(ge=0.0, le=1e6)] = 1.0
    moments_share: Share = 0.14  # of a passive party's mu^2, for X'z / n
    gram_share: Share = 0.06  # of a passive party's mu^2, for X'X / n; the rest is for the scores
    score_bound: Annotated[float, Field(ge=0.25, le=64.0)] = 2.0  # B, in deviations of a score
    # Prior variance of weights as a share of the labels', its maximum, and the largest norm of
    # weights.
    signal_share: Annotated[float, Field(gt=0.0, le=1e3)] = 0.09
    weight_variance_max: Annotated[float, Field(gt=0.0, le=1e18)] = 0.5
    weight_norm: Annotated[float, Field(gt=0.0, le=1e9)] = 16.0
    columns_max: Annotated[int, Field(ge=1, le=8192)] = 1024  # most columns of a passive party
    # Bounded noise for labels and scores costs pure epsilons (docs/bounded-noise.md); policies must
    # allow it by name. Scores then take this share of epsilon, and the shares above split the rest.
    noise: Noise = "gaussian"
    pure_share: Share = 0.8
    # Release exact scores of this many agreed rows, which are disclosed, instead of noised scores
    # of all.
    disclosed_rows: Annotated[int, Field(ge=0, le=10**9)] = 0
    # Common rows that no party trains on, to measure the joint model.
    held_out_rows: Annotated[int, Field(ge=0, le=10**9)] = 0

    def check(self, *, guarantee: Guarantee, intercept: bool, absence: Absence) -> None:
        """ValueError if a manifest with these settings cannot use this method."""
        if guarantee != "sound" or not intercept:
            raise ValueError("method private_model needs guarantee sound and an intercept")
        if self.moments_share + self.gram_share > 0.99:
            raise ValueError("method.moments_share and .gram_share leave nothing for scores")


class Prediction(Closed):
    """Score rows with the models of an earlier run; nothing is trained."""

    kind: Literal["prediction"] = "prediction"
    model_run: RunId
    weight_norm: Positive  # k, radius of the ball that holds every passive party's weights
    distance: NonNegative  # d_model: how far one training row can move the weights

    def check(self, *, guarantee: Guarantee, intercept: bool, absence: Absence) -> None:
        """ValueError if a manifest with these settings cannot use this method."""
        if guarantee == "paper":
            raise ValueError("method prediction: guarantee sound, or none for exact scores")
        if absence != "wait":
            raise ValueError("absence: a prediction needs every party; it can only wait")


class Scoring(Closed):
    """A session of scores with private weights of an earlier run (docs/scored-people.md).

    People are asked for by their place in one alignment. `score_bound` and `coarsen` are in
    deviations of a score. A score is made without a partner that does not answer in time, or it is
    refused.
    """

    kind: Literal["scoring"] = "scoring"
    model_run: RunId  # the run that trained the weights
    scores: Scores = "disclosed"  # exact, or with noise that is charged to each person's budget
    score_bound: Annotated[float, Field(ge=0.25, le=64.0)] = 2.0  # B, where noised scores are cut
    coarsen: Annotated[float, Field(ge=0.0, le=64.0)] = 0.0  # step of disclosed scores; 0: exact
    # How long a query waits for a partner.
    answer_within_s: Annotated[float, Field(gt=0.0, le=86400.0)] = 10.0
    # A score that lacks a partner: refused, or given with the names of missing partners.
    partner_away: Literal["refuse", "without"] = "refuse"

    def check(self, *, guarantee: Guarantee, intercept: bool, absence: Absence) -> None:
        """ValueError if a manifest with these settings cannot use this method."""
        if guarantee != "sound" or not intercept:
            raise ValueError("method scoring needs guarantee sound and an intercept")
        if absence != "wait":
            raise ValueError("absence: in a session method.partner_away says what happens")
        if self.scores == "noised" and self.coarsen:
            raise ValueError("method.coarsen belongs to disclosed scores")


Method = Annotated[Descent | PrivateModel | Prediction | Scoring, Field(discriminator="kind")]
