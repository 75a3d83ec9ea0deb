"""Random search over sequences of moves, and hill climbing over the numbers in them.

It owns how episodes are drawn from a seed and made worse; it knows no bound. An episode is one or
two runs under an adversary; its score is the largest difference between releases, as a share of the
booked mu^2. A seed always gives the same episodes, so a seed that finds a leak is kept as a test.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, replace

import numpy as np

from hdpvfl_mq.glm.families import family
from hdpvfl_mq.methods import prediction_of
from parties.phases import Closed
from schemas.config import RunManifest
from schemas.model import LossSpec
from tests.adversary.forged import FLAWS, Act
from tests.adversary.moves import ACTS, OTHERS, given, in_turn
from tests.adversary.neighbours import Rows
from tests.adversary.pair import Pair
from tests.adversary.scenarios import Scenario, scenario
from tests.adversary.sessions import session_of

MOVES_MAX = 90  # of an episode


@dataclass(frozen=True)
class Episode:
    """The data of both neighbours and the list of moves: what is climbed."""

    rows: tuple[Rows, Rows]
    acts: tuple[Act, ...]


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
    X = dice.normal(size=(n, d)) * float(dice.choice([0.3, 1.0, 1e6, 1e200]))
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
    return Pair(chosen.victim, chosen.policy, episode.rows, label_kind=kind)


def play(chosen: Scenario, episode: Episode, dice: np.random.Generator) -> tuple[Pair, Episode]:
    """Send the episode's moves, then draw more until the run is over; Leak is a finding."""
    pair, acts = make_pair(chosen, episode), list(episode.acts)
    with pair.keeping() if chosen.again else nullcontext():
        pair.enter(chosen.manifest)
        _drive(pair, chosen.offers, acts, dice)
        if chosen.is_scored and isinstance(pair.view, Closed) and pair.view.trained is not None:
            (_in_session if chosen.is_session else _scored)(pair, chosen, dice)
        if chosen.again is not None:
            pair.enter(chosen.again)
            _drive(pair, (chosen.again, *chosen.others), [], dice)
    pair.tap.check_noise()
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
        flaw=int(dice.integers(0, FLAWS)) if dice.random() < 0.7 else 0,
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
    fields["method"] = prediction_of(trained)
    manifest = RunManifest(**fields)
    pair.enter(manifest, models)
    _drive(pair, (manifest,), [], dice)


def _in_session(pair: Pair, chosen: Scenario, dice: np.random.Generator) -> None:
    """A scoring session with the weights that the first neighbour's training released."""
    model = replace(pair.models()[0], score_size=float(pair.view.trained.rounds.size))
    manifest = session_of(model.manifest)
    pair.enter(manifest, (model, model))
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

    Scenarios come back, since planning noise takes longer than a run; data and moves are new. Ten
    seeds share theirs.
    """
    dice, pool = np.random.default_rng(seed), np.random.default_rng([seed // 10, scenarios])
    known = list[Scenario]()
    while True:
        if len(known) < scenarios:
            known.append(scenario(pool))
        chosen = known[int(dice.integers(len(known)))]
        pair, best = play(chosen, drawn(chosen, dice), dice)
        top = pair.peak
        yield pair.moves, pair.peak, chosen
        for _ in range(climbs):
            pair, found = play(chosen, changed(best, chosen.manifest.loss, dice), dice)
            yield pair.moves, pair.peak, chosen
            if pair.peak >= top:
                best, top = found, pair.peak
