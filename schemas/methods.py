"""What a round computes, as a value: one variant for each method, each with its own fields.

It owns the public constants of every method and their limits; it knows no formula. A manifest
carries exactly one variant, told apart by `kind`; plan, bound and fit of a method are in
hdpvfl_mq/methods, both sides of its round in parties/rounds.
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


class ActiveSide(Closed):
    """The active party's optimiser."""

    step_size: Positive = 0.1
    weight_norm: Positive = 1.0  # k, the ball its weights stay in
    local_steps: Annotated[int, Field(ge=1, le=100)] = 1


class PassiveSide(Closed):
    """Every passive party's optimiser."""

    step_size: Positive = 0.1
    weight_norm: Positive = 1.0
    received_clip: Positive | None = None  # C in units of the active party's noise_std


class EarlyStop(Closed):
    """Stop when the released residuals of `patience` epochs bring no fall in their energy."""

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
        """ValueError if a manifest with these settings cannot have this method."""
        if guarantee == "sound" and self.passive.received_clip is None:
            raise ValueError("guarantee sound needs method.passive.received_clip (C, in noise_std)")


class OneRound(Closed):
    """One round of exact minimisers (docs/one-round.md); n is the number of rows."""

    kind: Literal["one_round"] = "one_round"
    active_strength_rows: Positive = 10.0  # lambda_A n
    feature_reach: Positive = 0.5  # K, the most the active party's columns add to theta
    curvature: Positive = 0.125  # kappa, the slope a passive party takes the loss to have
    curvature_damping: NonNegative = 0.5  # kappa grows by this share for every further party
    weight_norm: Positive = 8.0  # k of a passive party
    score_bound: Positive = 2.0  # B, scores are clipped to it before noise
    received_clip: Positive = 2.0  # C = L + this many noise_std of the active party
    shrink: NonNegative = 3.0
    prior_share: Fraction = 0.1
    weight_variance: Positive = 1.0  # what passive weights are expected to be

    def check(self, *, guarantee: Guarantee, intercept: bool, absence: Absence) -> None:
        """ValueError if a manifest with these settings cannot have this method."""
        if guarantee != "sound" or not intercept:
            raise ValueError("method one_round needs guarantee sound and an intercept")


class PrivateModel(Closed):
    """Weights from noised statistics, private for ever (docs/private-model.md).

    Scores leave in units of their own deviation, which follows from the statistics.
    """

    kind: Literal["private_model"] = "private_model"
    received_clip: NonNegative = 1.0  # C = 1 + this many noise_std, in units of half the range
    moments_share: Share = 0.14  # of a passive party's mu^2, for X'z / n
    gram_share: Share = 0.06  # and for X'X / n; the rest is for the scores
    score_bound: Annotated[float, Field(ge=0.25, le=64.0)] = 2.0  # B, in deviations of a score
    signal_share: Positive = 0.09  # prior variance of weights, as a share of the labels'
    weight_variance_max: Positive = 0.5  # and at most this
    weight_norm: Positive = 16.0  # what weights are brought back to
    columns_max: Annotated[int, Field(ge=1, le=8192)] = 1024  # of a passive party
    # Bounded noise for labels and scores costs pure epsilons (docs/bounded-noise.md); policies must
    # allow it by name. Scores then take this share of epsilon, and the shares above split the rest.
    noise: Noise = "gaussian"
    pure_share: Share = 0.8
    # Exact scores of so many agreed rows instead of noised scores of all; those rows are disclosed.
    disclosed_rows: Annotated[int, Field(ge=0, le=10**9)] = 0
    # Common rows that nothing is learnt from, to measure the joint model on.
    held_out_rows: Annotated[int, Field(ge=0, le=10**9)] = 0

    def check(self, *, guarantee: Guarantee, intercept: bool, absence: Absence) -> None:
        """ValueError if a manifest with these settings cannot have this method."""
        if guarantee != "sound" or not intercept:
            raise ValueError("method private_model needs guarantee sound and an intercept")
        if self.moments_share + self.gram_share > 0.99:
            raise ValueError("method.moments_share and .gram_share leave nothing for scores")


class Prediction(Closed):
    """Score rows with the models an earlier run left; nothing is learnt."""

    kind: Literal["prediction"] = "prediction"
    model_run: RunId
    weight_norm: Positive  # k: the ball that every passive party's weights lie in
    distance: NonNegative  # d_model: how far one training row can move them

    def check(self, *, guarantee: Guarantee, intercept: bool, absence: Absence) -> None:
        """ValueError if a manifest with these settings cannot have this method."""
        if guarantee == "paper":
            raise ValueError("method prediction: guarantee sound, or none for exact scores")
        if absence != "wait":
            raise ValueError("absence: a prediction needs every party; it can only wait")


Method = Annotated[Descent | OneRound | PrivateModel | Prediction, Field(discriminator="kind")]
