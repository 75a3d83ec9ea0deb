"""The attacked party and its run: random methods, losses, budgets and hostile offers.

It owns the settings an adversary may choose; it runs nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hdpvfl_mq.glm.families import family
from hdpvfl_mq.wire.versions import SPOKEN
from schemas.config import AlignmentSpec, IdRules, RunManifest
from schemas.methods import ActiveSide, Descent, EarlyStop, PassiveSide, PrivateModel
from schemas.model import LossSpec, PenaltySpec
from schemas.policy import PartyPolicy
from schemas.privacy import Budget

LOSSES = ("logistic", "least_squares", "huber", "squared_hinge", "poisson", "gamma", "normal")
POLICY = PartyPolicy(
    dataset="people",
    lifetime=Budget(epsilon=50.0, delta=0.01),
    run_epsilon_max=20.0,
    guarantees=("sound", "paper"),
    rows_min=2,
    learned_constants=True,
    disclosed_rows_max=8,
    scoring="disclosed",
    queries_max=2,
)
# Slots for a few bounded runs; what they leave of the budget is for Gaussian noise.
BOUNDED = PartyPolicy(
    **{**dict(POLICY), "noises": ("gaussian", "bounded"), "pure_slots": (15.0, 3.0, 3.0, 0.5)}
)


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """Who is attacked, and in which run; `others` are offers that come first."""

    victim: str
    manifest: RunManifest
    rows: int
    columns: int
    others: tuple[RunManifest, ...] = ()
    is_scored: bool = False  # a prediction with the model follows, or a session
    again: RunManifest | None = None  # a second run over the same rows, ledger and statistics

    @property
    def policy(self) -> PartyPolicy:
        method = self.manifest.method
        is_bounded = isinstance(method, PrivateModel) and method.noise == "bounded"
        return BOUNDED if is_bounded else POLICY

    @property
    def name(self) -> str:
        """What the moves of its episodes are counted under."""
        method, words = self.manifest.method, []
        if isinstance(method, PrivateModel):
            words = [method.noise, *(["disclosed"] if method.disclosed_rows else [])]
        words += ["session"] if self.is_session else []
        side = "active" if self.is_active else "passive"
        return " ".join([method.kind, *words, side])

    @property
    def is_active(self) -> bool:
        return self.victim == self.manifest.active_party

    @property
    def is_session(self) -> bool:
        """Whether a scoring session follows; any other model, or party, predicts in a run."""
        is_private = isinstance(self.manifest.method, PrivateModel) and not self.is_active
        return self.is_scored and is_private and self.manifest.seed % 4 > 0

    @property
    def offers(self) -> tuple[RunManifest, ...]:
        return (self.manifest, *self.others)


def scenario(dice: np.random.Generator) -> Scenario:
    """Draw who is attacked and how the run is set up."""
    rows, columns = int(dice.integers(4, 9)), int(dice.integers(1, 4))
    is_private = dice.random() < 0.5
    if is_private:
        rows += 10
    loss = LossSpec(
        name=str(dice.choice(LOSSES)),
        weight_max=float(dice.choice([1.0, 1.0, 2.5])),
        offset_max=float(dice.choice([0.0, 0.0, 1.0])),
    )
    # The active party's last fit takes long and tells nothing: fewer of those.
    victim = "bank" if dice.random() < (0.15 if is_private else 0.33) else "shop"
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
    fields["wire"] = SPOKEN[fields["seed"] % 2]  # both versions of the protocol in turn
    chosen = _private_model(dice, rows, columns) if is_private else _descent(dice, loss, rows)
    manifest = RunManifest(**{**fields, **chosen})
    is_scored = manifest.absence == "wait" and manifest.guarantee == "sound" and dice.random() < 0.3
    return Scenario(
        victim=victim,
        manifest=manifest,
        rows=rows,
        columns=columns,
        others=_others(manifest, dice),
        is_scored=is_scored,
        again=_again(manifest, dice, rows, columns) if is_private and not is_scored else None,
    )


def _private_model(dice: np.random.Generator, rows: int, columns: int) -> dict[str, object]:
    """The private model with either noise, rows held out, rows disclosed."""
    held_out = int(dice.choice([0, 0, 1, rows - 10]))
    method = PrivateModel(
        received_clip=float(dice.choice([0.0, 0.1, 1.0, 30.0])),
        moments_share=float(dice.choice([0.14, 0.5])),
        gram_share=float(dice.choice([0.06, 0.4])),
        score_bound=float(dice.choice([0.25, 0.3, 2.0, 64.0])),
        signal_share=float(dice.choice([0.09, 10.0])),
        weight_variance_max=float(dice.choice([0.5, 1e3])),
        weight_norm=float(dice.choice([0.01, 16.0])),
        columns_max=columns + int(dice.choice([0, 0, 3])),
        noise="bounded" if dice.random() < 0.4 else "gaussian",
        disclosed_rows=int(dice.choice([0, 0, 1, 4])),
        held_out_rows=held_out,
    )
    return {"method": method, "guarantee": "sound"}


def _again(
    manifest: RunManifest, dice: np.random.Generator, rows: int, columns: int
) -> RunManifest | None:
    """Another run of the same data set, with other settings, for which X'X may be there."""
    if dice.random() < 0.4:
        return None
    method = _private_model(dice, rows, columns)["method"]
    assert isinstance(method, PrivateModel)
    assert isinstance(manifest.method, PrivateModel)
    fields = {**dict(method), "noise": manifest.method.noise}
    changes = {"run": f"{manifest.run}-again", "seed": int(dice.integers(10**6))}
    return RunManifest(**{**dict(manifest), **changes, "method": PrivateModel(**fields)})


def _descent(dice: np.random.Generator, loss: LossSpec, rows: int) -> dict[str, object]:
    """Descent, its penalty and the intercept."""
    strength = float(dice.choice([1e-3, 0.1, 1.0]))
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
    budget, method = Budget(epsilon=20.0, delta=0.01), PrivateModel(columns_max=4)
    fields = {
        **dict(manifest),
        "budget": budget,
        "guarantee": "sound",
        "absence": "wait",
        "intercept": True,
    }
    found = [
        RunManifest(**{**fields, "loss": LossSpec(name=name), "method": method})
        for name in ("logistic", "least_squares", "poisson")
    ]
    found.append(RunManifest(**{**fields, "run": "another", "method": method}))
    return tuple(found)
