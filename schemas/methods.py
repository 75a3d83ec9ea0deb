"""What a round computes, as a value: one variant for each method, each with its own fields.

It owns the public constants of every method and their limits; it knows no formula. A manifest has
exactly one variant, identified by `kind`. Plan, bound and fit of a method are in hdpvfl_mq/methods,
both sides of its round in parties/rounds. Each variant states the facts of schemas/method_facts.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import Field

from schemas.base import Fraction, NonNegative, Positive, Strict
from schemas.ids import RunId
from schemas.method_facts import Asks, Facts, Noise, Payer, Scores

Share = Annotated[float, Field(gt=0.0, lt=1.0)]
Guarantee = Literal["sound", "paper", "none"]
Absence = Literal["wait", "last", "nothing"]


class ActiveSide(Strict):
    """The active party's optimiser."""

    step_size: Positive = 0.1
    weight_norm: Positive = 1.0  # k, radius of the ball that holds its weights
    local_steps: Annotated[int, Field(ge=1, le=100)] = 1


class PassiveSide(Strict):
    """Every passive party's optimiser."""

    step_size: Positive = 0.1
    weight_norm: Positive = 1.0
    received_clip: Positive | None = None  # C in units of the active party's noise_std


class EarlyStop(Strict):
    """Stop when the released residuals of `patience` epochs show no fall in their energy."""

    patience: Annotated[int, Field(ge=1, le=1000)] = 2
    tolerance: Annotated[float, Field(ge=0.0, lt=1.0)] = 1e-3


class Descent(Facts):
    """Gradient descent as in the paper: many rounds of shares and residuals."""

    trains: ClassVar[bool] = True
    model_of: ClassVar[None] = None
    is_session: ClassVar[bool] = False
    payer: ClassVar[Payer] = "rows"
    active_releases: ClassVar[bool] = True
    active_rows_scaled: ClassVar[bool] = True
    session_bound: ClassVar[None] = None
    covers: ClassVar[None] = None
    asks: ClassVar[Asks] = Asks(
        noise="gaussian", disclosed_rows=0, columns_max=None, scores=None, coarsen=0.0
    )

    kind: Literal["descent"] = "descent"
    epochs: Annotated[int, Field(ge=1, le=1_000_000)] = 10
    batch_rows: Annotated[int, Field(ge=1, le=10**9)] = 3200
    step_decay: NonNegative = 0.0
    average_from: Fraction = 1.0  # share of the rounds after which iterates are averaged
    early_stop: EarlyStop | None = None
    active: ActiveSide = ActiveSide()
    passive: PassiveSide = PassiveSide()

    @property
    def may_stop_early(self) -> bool:
        """Whether a public rule may end the run before its last round."""
        return self.early_stop is not None

    def check(self, *, guarantee: Guarantee, intercept: bool, absence: Absence) -> None:
        """ValueError if a manifest with these settings cannot use this method."""
        if guarantee == "sound" and self.passive.received_clip is None:
            raise ValueError("guarantee sound needs method.passive.received_clip (C, in noise_std)")


class PrivateModel(Facts):
    """Weights from noised statistics, private for ever (docs/private-model.md).

    Scores leave in units of their own deviation, which follows from the statistics.
    """

    trains: ClassVar[bool] = True
    model_of: ClassVar[None] = None
    is_session: ClassVar[bool] = False
    payer: ClassVar[Payer] = "rows"
    active_releases: ClassVar[bool] = True
    active_rows_scaled: ClassVar[bool] = False
    may_stop_early: ClassVar[bool] = False
    covers: ClassVar[None] = None

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

    @property
    def session_bound(self) -> float:
        """B of a session that scores with its weights, which are private."""
        return self.score_bound

    @property
    def asks(self) -> Asks:
        """What a policy must allow; scores of rows held out leave as those of the others do."""
        return Asks(
            noise=self.noise,
            disclosed_rows=self.disclosed_rows + self.held_out_rows if self.disclosed_rows else 0,
            columns_max=self.columns_max,
            scores=None,
            coarsen=0.0,
        )

    def check(self, *, guarantee: Guarantee, intercept: bool, absence: Absence) -> None:
        """ValueError if a manifest with these settings cannot use this method."""
        if guarantee != "sound" or not intercept:
            raise ValueError("method private_model needs guarantee sound and an intercept")
        if self.moments_share + self.gram_share > 0.99:
            raise ValueError("method.moments_share and .gram_share leave nothing for scores")


class Prediction(Facts):
    """Score rows with the models of an earlier run; nothing is trained."""

    trains: ClassVar[bool] = False
    is_session: ClassVar[bool] = False
    payer: ClassVar[Payer] = "rows"
    active_releases: ClassVar[bool] = False
    active_rows_scaled: ClassVar[bool] = True
    may_stop_early: ClassVar[bool] = False
    session_bound: ClassVar[None] = None
    asks: ClassVar[Asks] = Asks(
        noise="gaussian", disclosed_rows=0, columns_max=None, scores=None, coarsen=0.0
    )

    kind: Literal["prediction"] = "prediction"
    model_run: RunId
    weight_norm: Positive  # k, radius of the ball that holds every passive party's weights
    distance: NonNegative  # d_model: how far one training row can move the weights

    @property
    def model_of(self) -> RunId:
        """The run whose weights this run scores with."""
        return self.model_run

    @property
    def covers(self) -> tuple[float, float]:
        """The weight norm and the distance of an earlier run's weights that its price covers."""
        return self.weight_norm, self.distance

    def check(self, *, guarantee: Guarantee, intercept: bool, absence: Absence) -> None:
        """ValueError if a manifest with these settings cannot use this method."""
        if guarantee == "paper":
            raise ValueError("method prediction: guarantee sound, or none for exact scores")
        if absence != "wait":
            raise ValueError("absence: a prediction needs every party; it can only wait")


class Scoring(Facts):
    """A session of scores with private weights of an earlier run (docs/scored-people.md).

    People are asked for by their place in one alignment. `score_bound` and `coarsen` are in
    deviations of a score. A score is made without a partner that does not answer in time, or it is
    refused.
    """

    trains: ClassVar[bool] = False
    is_session: ClassVar[bool] = True
    payer: ClassVar[Payer] = "scored people"
    active_releases: ClassVar[bool] = False
    active_rows_scaled: ClassVar[bool] = True
    may_stop_early: ClassVar[bool] = False
    session_bound: ClassVar[None] = None
    covers: ClassVar[None] = None

    kind: Literal["scoring"] = "scoring"
    model_run: RunId  # the run that trained the weights
    scores: Scores = "disclosed"  # exact, or with noise that is charged to each person's budget
    score_bound: Annotated[float, Field(ge=0.25, le=64.0)] = 2.0  # B, where noised scores are cut
    coarsen: Annotated[float, Field(ge=0.0, le=64.0)] = 0.0  # step of disclosed scores; 0: exact
    # How long a query waits for a partner.
    answer_within_s: Annotated[float, Field(gt=0.0, le=86400.0)] = 10.0
    # A score that lacks a partner: refused, or given with the names of missing partners.
    partner_away: Literal["refuse", "without"] = "refuse"

    @property
    def model_of(self) -> RunId:
        """The run whose weights this run scores with."""
        return self.model_run

    @property
    def asks(self) -> Asks:
        """What a policy must allow."""
        return Asks(
            noise="gaussian",
            disclosed_rows=0,
            columns_max=None,
            scores=self.scores,
            coarsen=self.coarsen,
        )

    def check(self, *, guarantee: Guarantee, intercept: bool, absence: Absence) -> None:
        """ValueError if a manifest with these settings cannot use this method."""
        if guarantee != "sound" or not intercept:
            raise ValueError("method scoring needs guarantee sound and an intercept")
        if absence != "wait":
            raise ValueError("absence: in a session method.partner_away says what happens")
        if self.scores == "noised" and self.coarsen:
            raise ValueError("method.coarsen belongs to disclosed scores")


Method = Annotated[Descent | PrivateModel | Prediction | Scoring, Field(discriminator="kind")]
VARIANTS: tuple[Any, ...] = get_args(get_args(Method)[0])
# Names of the methods that leave a model behind.
TRAINING_KINDS = frozenset(v.model_fields["kind"].default for v in VARIANTS if v.trains is True)


def unknown_options(method: Method, names: Iterable[str]) -> tuple[str, ...]:
    """Those of these names that are no field of the method."""
    return tuple(name for name in names if name not in type(method).model_fields)


def with_options(method: Method, options: Mapping[str, Any]) -> Method:
    """The method with these fields changed; ValueError names those that it does not have."""
    if unknown := unknown_options(method, options):
        raise ValueError(f"method {method.kind} has no {', '.join(unknown)}")
    return type(method).model_validate({**dict(method), **options})
