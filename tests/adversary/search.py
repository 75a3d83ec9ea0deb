"""Random search over sequences of moves, and hill climbing over the numbers in them.

It owns how episodes are drawn from a seed and made worse; it knows no bound. An episode is a run or
two under an adversary; its score is the largest share of the booked mu^2 that the releases told
apart. A seed gives the same episodes for ever, so one that finds a leak is kept as a test.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from hdpvfl_mq.glm.families import family
from hdpvfl_mq.methods.prediction.plan import prediction_of
from parties.phases import Closed
from schemas.config import AlignmentSpec, IdRules, PartyPolicy, RunManifest
from schemas.methods import ActiveSide, Descent, EarlyStop, OneRound, PassiveSide
from schemas.model import LossSpec, PenaltySpec
from schemas.privacy import Budget
from tests.adversary.moves import ACTS, OTHERS, Act, given, in_turn
from tests.adversary.pair import Pair, Rows

LOSSES = ("logistic", "least_squares", "huber", "squared_hinge", "poisson", "gamma", "normal")
POLICY = PartyPolicy(
    dataset="people",
    lifetime=Budget(epsilon=50.0, delta=0.01),
    run_epsilon_max=20.0,
    guarantees=("sound", "paper"),
    rows_min=2,
    learned_constants=True,
)
MOVES_MAX = 90  # of an episode


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """Who is attacked, and in which run; `others` are offers that come first."""

    victim: str
    manifest: RunManifest
    rows: int
    columns: int
    others: tuple[RunManifest, ...] = ()
    is_scored: bool = False  # a prediction with the model follows

    @property
    def is_active(self) -> bool:
        return self.victim == self.manifest.active_party

    @property
    def offers(self) -> tuple[RunManifest, ...]:
        return (self.manifest, *self.others)


@dataclass(frozen=True)
class Episode:
    """The data of both neighbours and the list of moves: what is climbed."""

    rows: tuple[Rows, Rows]
    acts: tuple[Act, ...]


def scenario(dice: np.random.Generator) -> Scenario:
    """Draw who is attacked and how the run is set up."""
    rows, columns = int(dice.integers(4, 9)), int(dice.integers(1, 4))
    loss = LossSpec(
        name=str(dice.choice(LOSSES)),
        weight_max=float(dice.choice([1.0, 1.0, 2.5])),
        offset_max=float(dice.choice([0.0, 0.0, 1.0])),
    )
    victim = str(dice.choice(["bank", "shop", "shop"]))
    fields = {
        "run": f"run-{int(dice.integers(10**6))}",
        "active_party": "bank",
        "passive_parties": ("shop", "telco")[: int(dice.integers(1, 3))],
        "guarantee": "paper" if dice.random() < 0.1 else "sound",
        "budget": Budget(epsilon=float(dice.choice([0.5, 3.0, 15.0])), delta=0.01),
        "loss": loss,
        "seed": int(dice.integers(10**6)),
        "alignment": AlignmentSpec(ids=IdRules(kind="integer"), rows_min=2),
        "absence": str(dice.choice(["wait", "wait", "nothing", "last"])),
        "rounds_ahead": int(dice.choice([1, 4, 256])),
    }
    manifest = RunManifest(**{**fields, **_method(dice, loss, rows)})
    is_scored = manifest.absence == "wait" and manifest.guarantee == "sound" and dice.random() < 0.3
    return Scenario(
        victim=victim,
        manifest=manifest,
        rows=rows,
        columns=columns,
        others=_others(manifest, dice),
        is_scored=is_scored,
    )


def _method(dice: np.random.Generator, loss: LossSpec, rows: int) -> dict[str, object]:
    """A method, its penalty and the intercept."""
    strength = float(dice.choice([1e-3, 0.1, 1.0]))
    if dice.random() < 0.3:
        method = OneRound(
            active_strength_rows=float(dice.choice([0.2, 10.0])),
            feature_reach=float(dice.choice([0.5, 8.0])),
            weight_norm=float(dice.choice([1.0, 8.0])),
            shrink=0.0,
            weight_variance=float(dice.choice([1.0, 1e3, 1e6])),
            received_clip=float(dice.choice([0.01, 2.0])),
        )
        return {"method": method, "guarantee": "sound"}
    beta = family(loss).smoothness
    eta = float(dice.choice([0.1, 0.9])) * 2.0 / (beta + strength)
    passive = min(float(dice.choice([0.5, 5.0])), 1.9 / strength)
    penalty = PenaltySpec(
        name=str(dice.choice(["l2", "l2", "none", "l1", "elastic_net"])), strength=strength
    )
    method = Descent(
        epochs=int(dice.choice([1, 4, 12])),
        batch_rows=int(dice.integers(2, rows + 1)),
        step_decay=float(dice.choice([0.0, 0.0, 0.3])),
        average_from=float(dice.choice([0.5, 1.0])),
        early_stop=EarlyStop(patience=1) if dice.random() < 0.2 else None,
        active=ActiveSide(
            step_size=eta,
            weight_norm=float(dice.choice([1.0, 100.0])),
            local_steps=int(dice.choice([1, 1, 5])),
        ),
        passive=PassiveSide(
            step_size=passive,
            weight_norm=float(dice.choice([1.0, 100.0])),
            received_clip=float(dice.choice([0.1, 1.0])),
        ),
    )
    return {"method": method, "penalty": penalty, "intercept": bool(dice.random() < 0.6)}


def _others(manifest: RunManifest, dice: np.random.Generator) -> tuple[RunManifest, ...]:
    """Offers of a hostile coordinator; a party may take one of them, and pays for that one."""
    budget = Budget(epsilon=20.0, delta=0.01)
    fields = {
        **dict(manifest),
        "budget": budget,
        "guarantee": "sound",
        "absence": "wait",
        "intercept": True,
    }
    found = [
        RunManifest(**{**fields, "loss": LossSpec(name=name), "method": OneRound()})
        for name in ("logistic", "least_squares", "poisson")
    ]
    found.append(RunManifest(**{**fields, "run": "another", "method": OneRound()}))
    return tuple(found)


# -- one episode ---------------------------------------------------------------------------------


def drawn(chosen: Scenario, dice: np.random.Generator) -> Episode:
    """Data of two neighbours; the moves are drawn while it is played."""
    n, d = chosen.rows, chosen.columns
    spec = chosen.manifest.loss
    rows = Rows(
        X=_features(dice, n, d),
        y=_labels(dice, spec, n),
        weights=dice.choice([0.0, spec.weight_max, 9e9], n) if spec.weight_max > 1.0 else None,
        offset=dice.uniform(-9.0, 9.0, n) if spec.offset_max > 0.0 else None,
    )
    return Episode((rows, _neighbour(rows, spec, dice)), ())


def _features(dice: np.random.Generator, n: int, d: int) -> np.ndarray:
    X = dice.normal(size=(n, d)) * float(dice.choice([0.3, 1.0, 1e6]))
    if dice.random() < 0.5:
        X[:] = np.eye(d)[int(dice.integers(d))] * dice.choice([-1.0, 1.0], (n, 1))
    return X


def _labels(dice: np.random.Generator, spec: LossSpec, n: int) -> np.ndarray:
    kind = family(spec).label_kind
    if kind == "binary":
        return dice.integers(0, 2, n).astype(float)
    if kind == "count":
        return dice.choice([0.0, 1.0, 1e6], n)
    if kind == "positive":
        return dice.choice([1e-6, 1.0, 1e6], n)
    return dice.choice([-1e6, 0.0, 0.3, 1e6], n)


def _neighbour(rows: Rows, spec: LossSpec, dice: np.random.Generator) -> Rows:
    """One row replaced, often by its opposite."""
    row = int(dice.integers(len(rows.X)))
    x = -rows.X[row] if dice.random() < 0.7 else _features(dice, 1, rows.X.shape[1])[0]
    return rows.replaced(
        row,
        x,
        float(_labels(dice, spec, 1)[0]),
        weight=float(dice.choice([0.0, 9e9])),
        offset=float(dice.choice([-9.0, 9.0])),
    )


def make_pair(chosen: Scenario, episode: Episode) -> Pair:
    """Both neighbours, before their first run."""
    kind = family(chosen.manifest.loss).label_kind
    return Pair(chosen.victim, POLICY, episode.rows, label_kind=kind)


def play(chosen: Scenario, episode: Episode, dice: np.random.Generator) -> tuple[Pair, Episode]:
    """Send the episode's moves, then draw more until the run is over; Leak is a finding."""
    pair = make_pair(chosen, episode)
    pair.enter(chosen.manifest)
    acts = list(episode.acts)
    _drive(pair, chosen.offers, acts, dice)
    if chosen.is_scored and isinstance(pair.view, Closed) and pair.view.trained is not None:
        _scored(pair, chosen, dice)
    return pair, replace(episode, acts=tuple(acts))


def _drive(
    pair: Pair, offers: tuple[RunManifest, ...], acts: list[Act], dice: np.random.Generator
) -> None:
    """Moves that are in `acts` first; every further one is drawn and added there."""
    number = 0
    while number < MOVES_MAX and not (number >= len(acts) and isinstance(pair.view, Closed)):
        if number == len(acts):
            acts.append(_next(pair, dice))
        act = acts[number]
        given(pair, act, offers)
        number += 1
    for _ in range(3):  # after the end
        act = _any(dice)
        given(pair, act, offers)


def _next(pair: Pair, dice: np.random.Generator) -> Act:
    return in_turn(pair, _numbers(dice)) if dice.random() < 0.8 else _any(dice)


def _any(dice: np.random.Generator) -> Act:
    names = [name for name in ACTS if name != "closed" or dice.random() < 0.1]
    name = str(dice.choice(names))
    peers = name in ("values", "block", "head", "witness")
    return Act(
        name,
        sender=str(dice.choice(OTHERS)) if peers else "coordinator",
        shift=int(dice.integers(-2, 3)) if dice.random() < 0.5 else 0,
        flaw=int(dice.integers(0, 10)) if dice.random() < 0.7 else 0,
        values=_numbers(dice),
    )


def _numbers(dice: np.random.Generator) -> np.ndarray:
    """Numbers for one message: all at the bound, at random, or nothing."""
    count = int(dice.integers(1, 9))
    kind = dice.random()
    if kind < 0.5:
        return dice.choice([-1.0, 0.0, 1.0], count)
    return np.ones(1) * dice.choice([-1.0, 1.0]) if kind < 0.8 else dice.uniform(-1, 1, count)


def _scored(pair: Pair, chosen: Scenario, dice: np.random.Generator) -> None:
    """A prediction with what the run left, over the same rows and the same ledger."""
    models = pair.models()
    trained = models[0].manifest
    fields = {**dict(trained), "run": f"{trained.run}-scores", "absence": "wait"}
    fields["method"] = prediction_of(trained, models[0].rows)
    manifest = RunManifest(**fields)
    pair.enter(manifest, models)
    _drive(pair, (manifest,), [], dice)


# -- search --------------------------------------------------------------------------------------


def changed(episode: Episode, spec: LossSpec, dice: np.random.Generator) -> Episode:
    """One change: of a message's numbers, of a row, or of the row that is replaced."""
    acts = list(episode.acts)
    kind = dice.random()
    if acts and kind < 0.5:
        for _ in range(int(dice.integers(1, 4))):
            at = int(dice.integers(len(acts)))
            acts[at] = replace(acts[at], values=_numbers(dice))
        return replace(episode, acts=tuple(acts))
    if acts and kind < 0.6:
        del acts[int(dice.integers(len(acts)))]
        return replace(episode, acts=tuple(acts))
    first = episode.rows[0]
    X, y = first.X.copy(), first.y.copy()
    at = int(dice.integers(len(X)))
    X[at] = _features(dice, 1, X.shape[1])[0]
    y[at] = _labels(dice, spec, 1)[0]
    rows = replace(first, X=X, y=y)
    return replace(episode, rows=(rows, _neighbour(rows, spec, dice)))


def episodes(
    seed: int, *, scenarios: int = 40, climbs: int = 12
) -> Iterator[tuple[int, float, Scenario]]:
    """Play for ever: (moves, score, scenario) of one episode after the other, from a seed.

    Scenarios come back, since planning noise takes longer than a run; data and moves are new.
    """
    dice = np.random.default_rng(seed)
    known = list[Scenario]()
    while True:
        if len(known) < scenarios:
            known.append(scenario(dice))
        chosen = known[int(dice.integers(len(known)))]
        pair, best = play(chosen, drawn(chosen, dice), dice)
        top = pair.peak
        yield pair.moves, pair.peak, chosen
        for _ in range(climbs):
            pair, found = play(chosen, changed(best, chosen.manifest.loss, dice), dice)
            yield pair.moves, pair.peak, chosen
            if pair.peak >= top:
                best, top = found, pair.peak
