"""Recommended settings, from public quantities only.

It owns the recommended optimiser settings; it sees rows, parties, budget and loss, never data. One
rule serves all data sets; docs/results shows its results.
"""

from __future__ import annotations

from hdpvfl_mq.glm.families import family, unclipped
from schemas.config import RunManifest
from schemas.methods import ActiveSide, Descent, Guarantee, PassiveSide, PrivateModel
from schemas.model import LossSpec, PenaltyName, PenaltySpec
from schemas.privacy import Budget

NORM_UNBOUNDED = 1e6
# Limits on epochs without privacy: a number, and a multiple of what a known slope needs.
EPOCHS_MAX, STRETCH_MAX = 2000, 4.0
Parties = tuple[str, tuple[str, ...]]  # the active party and the passive ones


def delta_warning(delta: float, rows: int) -> str | None:
    """Warn if delta is above 1 / rows: delta then permits publishing a random row in the clear."""
    if rows < 1 or delta * rows <= 1.0:
        return None
    return (
        f"delta = {delta:g} is more than 1 / rows: a mechanism that shows one of {rows:,} rows at "
        f"random would pass. Take at most {1.0 / rows:.1e} for a real run; 0.01 is there to repeat "
        "the paper"
    )


def recommend(
    run: str,
    parties: Parties,
    guarantee: Guarantee,
    budget: Budget,
    loss: LossSpec,
    *,
    penalty: str = "l2",
) -> RunManifest:
    """A manifest for one active and some passive parties; `penalty` decides the method."""
    if guarantee == "paper":
        return _manifest(run, parties, loss, _paper(budget))
    if guarantee == "none":
        return _manifest(run, parties, loss, _none(loss, len(parties[1])))
    if not family(loss).is_zero_legal or penalty != "l2":  # the private model's prior is l2
        return sound_descent(run, parties, budget, loss)
    return _manifest(run, parties, loss, _private_model(loss, budget))


def penalty_named(base: RunManifest, name: PenaltyName) -> PenaltySpec:
    """Another penalty for a recommended manifest, as strong as its own."""
    return PenaltySpec(name=name, strength=0.0 if name == "none" else base.penalty.strength)


def sound_descent(run: str, parties: Parties, budget: Budget, loss: LossSpec) -> RunManifest:
    """Few epochs over all rows, with steps as long as the privacy argument allows."""
    strength = 1e-4
    beta = family(loss).smoothness
    method = Descent(
        epochs=5,
        batch_rows=10**9,
        average_from=0.5,
        active=ActiveSide(
            step_size=0.99 * 2.0 / (beta + strength), weight_norm=10.0, local_steps=3
        ),
        passive=PassiveSide(step_size=5.0 / beta, weight_norm=2.0, received_clip=1.0),
    )
    settings = {
        "guarantee": "sound",
        "budget": budget,
        "penalty": PenaltySpec(name="l2", strength=strength),
        "method": method,
    }
    return _manifest(run, parties, loss, settings)


def _manifest(
    run: str, parties: Parties, loss: LossSpec, settings: dict[str, object]
) -> RunManifest:
    active, passives = parties
    names = {"run": run, "active_party": active, "passive_parties": passives, "loss": loss}
    return RunManifest.model_validate({**names, **settings})


def _private_model(loss: LossSpec, budget: Budget) -> dict[str, object]:
    """Weights are of order 1 for a loss with a log link, else of the order of the labels."""
    fam = family(loss)
    unit = 1.0 if fam.is_logit or fam.is_log else (fam.mean_range[1] - fam.mean_range[0]) / 6.0
    method = PrivateModel(weight_variance_max=0.5 * unit**2, weight_norm=16.0 * unit)
    return {"guarantee": "sound", "budget": budget, "method": method}


def _paper(budget: Budget) -> dict[str, object]:
    """The settings of the paper's experiments."""
    return {
        "guarantee": "paper",
        "budget": budget,
        "penalty": PenaltySpec(name="l2", strength=1e-3),
        "method": Descent(
            epochs=10,
            batch_rows=3200,
            active=ActiveSide(step_size=0.1, weight_norm=1.0),
            passive=PassiveSide(step_size=0.1, weight_norm=1.0),
        ),
    }


def _none(loss: LossSpec, passives: int) -> dict[str, object]:
    """Full-batch gradient descent; joint rows have a squared norm of at most 1 + passives.

    If steps must be short, because there are many parties or a slope may be steep, the run has
    more of them.
    """
    usual, steepest = family(loss).path_slopes()
    eta = 1.9 / (steepest * (1 + passives))
    epochs = 100 * (1 + passives) * min(STRETCH_MAX, steepest / usual)
    return {
        "guarantee": "none",
        "loss": unclipped(loss),
        "penalty": PenaltySpec(name="l2", strength=1e-4),
        "method": Descent(
            epochs=min(EPOCHS_MAX, round(epochs)),
            batch_rows=10**9,
            active=ActiveSide(step_size=eta, weight_norm=NORM_UNBOUNDED),
            passive=PassiveSide(step_size=eta, weight_norm=NORM_UNBOUNDED),
        ),
    }
