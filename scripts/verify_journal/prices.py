"""The plan of a run, derived from manifest and row count: noise and price of every release.

It shares no code with the library; docs/privacy.md, docs/private-model.md and docs/bounded-noise.md
have the formulas. ValueError: no plan follows, and no party may train.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

from .bounded import label_law, number_law
from .curves import epsilon_of
from .formats import sha
from .losses import SCORE_ROUNDING, Loss, contraction
from .noise import Noise, Part, bounded, fitted, fitted_alone, priced, rounded_up, total, unplanned
from .recursion import FLOAT_SLACK, Side, coarsest_grid, cumulative, passive_side

ROUNDS_MAX = 200_000
ROW_EXPONENT = -9  # the grid of labels and scores of the private model
SILENT = Noise(0.0, 0)


@dataclass(frozen=True)
class Plan:
    """Noise of the values that each role sends, and of what a passive party keeps for itself."""

    rows: int
    sizes: list[int]
    rounds: int
    active: Noise
    passive: Noise
    clip: float
    inner: dict[str, Noise] = field(default_factory=dict)
    free: bool = False  # a session reserves nothing: the account of scored people pays

    def of(self, role: str) -> Noise:
        return self.active if role == "active" else self.passive

    def cost(self, role: str) -> tuple[int, int, tuple[int, ...]]:
        """What a party reserves."""
        noises = [self.active] if role == "active" else [*self.inner.values(), self.passive]
        return total([] if self.free else noises)

    def digest(self, manifest: bytes) -> bytes:
        sides = (self.active, self.passive, *self.inner.values())
        stated = [noise.stated() for noise in sides]
        return sha(b"hdpvfl-mq plan 2\0", manifest, *stated, repr((self.rows, self.clip)).encode())


def plan_of(manifest: dict[str, Any], rows: int) -> Plan:
    method = manifest["method"]
    if rows < 1:
        raise ValueError("no rows")
    try:
        return PLANS[method["kind"]](manifest, method, rows)
    except ArithmeticError as beyond:
        raise ValueError("numbers too large or too small") from beyond


# -- descent ----------------------------------------------------------------------------------


def descent(manifest: dict[str, Any], method: dict[str, Any], rows: int) -> Plan:
    batches = -(-rows // min(method["batch_rows"], rows))
    rounds = batches * method["epochs"]
    if rounds > ROUNDS_MAX:
        raise ValueError("too many rounds")
    sizes = [(i + 1) * rows // batches - i * rows // batches for i in range(batches)]
    loss = Loss(manifest["loss"])
    if manifest["budget"] is None:
        plain = unplanned(rounds)
        return Plan(rows, sizes, rounds, plain, plain, math.inf)
    etas = {
        role: [
            method[role]["step_size"] / (1.0 + method["step_decay"] * (t // batches))
            for t in range(rounds)
        ]
        for role in ("active", "passive")
    }
    made = paper if manifest["guarantee"] == "paper" else sound
    return Plan(rows, sizes, rounds, *made(manifest, loss, sizes, etas))


def sound(
    manifest: dict[str, Any], loss: Loss, sizes: list[int], etas: dict[str, list[float]]
) -> tuple[Noise, Noise, float]:
    method, budget, penalty = manifest["method"], manifest["budget"], manifest["penalty"]
    rho = contraction(penalty, etas["active"], loss.smoothness, manifest["intercept"])
    own = loss.own_move(method["active"]["weight_norm"])
    active = fitted_alone(
        part_of(active_side(method, loss, sizes, etas["active"], rho, own), loss.bound), budget
    )
    clip = method["passive"]["received_clip"] * active.std
    rho = contraction(penalty, etas["passive"], None, False)
    rho = rho if manifest["absence"] == "wait" else 1.0  # a skipped round does not contract
    radius = method["passive"]["weight_norm"]
    side = passive_side(sizes, etas["passive"], rho, radius, clip)
    return active, fitted_alone(part_of(side, radius), budget), clip


def active_side(
    method: dict[str, Any],
    loss: Loss,
    sizes: list[int],
    etas: list[float],
    rho: float,
    own: float,
) -> Side:
    norm, steps = method["active"]["weight_norm"], method["active"]["local_steps"]
    moves, rounding = [min(own, 2.0 * loss.bound)] * len(etas), loss.rounding(norm)
    return Side(
        sizes, etas, rho, norm, loss.smoothness, loss.bound, moves, rounding, rounding, steps
    )


def part_of(side: Side, bound: float, exponent: int | None = None) -> Part:
    """All rounds of one side as a part of a budget."""
    grid = coarsest_grid(side) if exponent is None else exponent
    rows = [side.sizes[t % len(side.sizes)] for t in range(len(side.etas))]
    return Part(cumulative(side, 2.0**grid), rows, grid, bound)


def paper(
    manifest: dict[str, Any], loss: Loss, sizes: list[int], etas: dict[str, list[float]]
) -> tuple[Noise, Noise, float]:
    """The published noise, at its real price; infinite if no step bounds it or epsilon is large."""
    method, norm = manifest["method"], manifest["method"]["active"]["weight_norm"]
    side = active_side(method, loss, sizes, etas["active"], 1.0, 2.0 * loss.bound)
    try:
        args = (manifest["penalty"], etas["active"], loss.smoothness, manifest["intercept"])
        side = replace(side, rho=contraction(*args))
    except ValueError:
        side = replace(side, pull=math.inf, own=[math.inf] * len(side.own))
    beta_y, label = loss.published()
    reach = loss.smoothness * norm + beta_y * label
    active = as_published(manifest, side, reach, loss.smoothness * loss.bound, loss.bound)
    radius = method["passive"]["weight_norm"]
    side = passive_side(sizes, etas["passive"], 1.0, radius, math.inf)
    return active, as_published(manifest, side, radius, loss.bound, radius), math.inf


def as_published(
    manifest: dict[str, Any], side: Side, radius: float, bound: float, value_bound: float
) -> Noise:
    """Lemmas 2 and 3 and the classical formula."""
    budget, e, rounds = manifest["budget"], manifest["method"]["epochs"], len(side.etas)
    eta, b = max(side.etas), max(side.sizes)
    step = bound * e * eta
    square = 4 * step**2 * rounds / b + 8 * radius * step * e / b + 4 * radius**2 * e
    std = math.sqrt(2.0 * math.log(1.25 / budget["delta"])) * math.sqrt(square) / budget["epsilon"]
    grid = None if math.isfinite(side.own[-1]) else math.floor(math.log2(std)) - 12
    part = part_of(side, value_bound, grid)
    found = priced(part, rounded_up(max(std / 2.0**part.exponent, 0.25)))
    if not found.infinite and epsilon_of(budget["delta"], *total([found])) > 900.0:
        found = replace(found, mu2=(), tau=())
    return found


# -- private model, predictions, sessions --------------------------------------------------------


def private_model(manifest: dict[str, Any], method: dict[str, Any], rows: int) -> Plan:
    budget, learnt = manifest["budget"], rows - method["held_out_rows"]
    if budget is None or learnt < 10:
        raise ValueError("no budget, or too few rows to learn from")
    loss, is_bounded = Loss(manifest["loss"]), method["noise"] == "bounded"
    if is_bounded:
        epsilon = budget["epsilon"]
        law = label_law(epsilon) if loss.is_binary else number_law(1.0, epsilon)
        active, clip = bounded(law, 1.0), law.largest() + 0.5
    else:
        active = fitted_alone(Part([4.0], [learnt], ROW_EXPONENT, 1.0), budget)
        clip = 1.0 + method["received_clip"] * active.std
    clip = math.ceil(min(clip, 2.0**16) * 2.0**16) * 2.0**-16
    inner, share = passive_releases(method, rows, clip, budget)
    return Plan(rows, [rows], 1, active, share, clip, inner)


def passive_releases(
    method: dict[str, Any], rows: int, clip: float, budget: dict[str, float]
) -> tuple[dict[str, Noise], Noise]:
    """Statistics that stay inside, and scores."""
    moments, gram = method["moments_share"], method["gram_share"]
    learnt, shown = rows - method["held_out_rows"], method["disclosed_rows"]
    is_bounded = method["noise"] == "bounded"
    scores = 0.0 if shown or is_bounded else 1.0 - moments - gram
    parts = statistics(method, learnt, clip, moments + gram + scores)
    if shown:
        disclosed = min(shown, learnt) + method["held_out_rows"]
        return fitted(parts, budget), replace(SILENT, disclosed=disclosed)
    bound = score_bound(method)
    if is_bounded:
        square = min(1.0, bound**-2)
        share = bounded(number_law(bound, budget["epsilon"] * method["pure_share"], square), square)
        return fitted(parts, budget, share.pure), share
    parts["share"] = Part([score_square(bound)], [rows], ROW_EXPONENT, bound, scores)
    found = fitted(parts, budget)
    return found, found.pop("share")


def statistics(
    method: dict[str, Any], learnt: int, clip: float, split: float
) -> dict[str, Part]:  # X'z / n and X'X / n
    columns = method["columns_max"]
    u, u_grid = on_grid(2.0 * clip / learnt, math.sqrt(columns))
    g, g_grid = on_grid(math.sqrt(2.0) / learnt, float(columns))
    entries = columns * (columns + 1) // 2
    return {
        "moments": Part([u], [columns], u_grid, clip, method["moments_share"] / split),
        "gram": Part([g], [entries], g_grid, 1.0, method["gram_share"] / split, symmetric=True),
    }


def on_grid(move: float, steps: float) -> tuple[float, int]:
    """The square of a move with its rounding, on the coarsest grid that adds at most 1 %."""
    exponent = math.floor(math.log2(move * 0.01 / steps))
    return ((move + steps * 2.0**exponent) * (1.0 + 2.0**-48)) ** 2, exponent


def score_bound(method: dict[str, Any]) -> float:
    return float(math.ceil(method["score_bound"] * 2.0**9) * 2.0**ROW_EXPONENT)


def score_square(bound: float) -> float:
    return (2.0 * bound) ** 2 * (1.0 + 2.0**-50)


def prediction(manifest: dict[str, Any], method: dict[str, Any], rows: int) -> Plan:
    radius, distance, budget = method["weight_norm"], method["distance"], manifest["budget"]
    Loss(manifest["loss"])
    if budget is None:
        return Plan(rows, [rows], 1, SILENT, unplanned(1), math.inf)
    if not 0.0 <= distance <= 2.0 * radius:
        raise ValueError("weights outside their ball")

    def square(grid: float) -> float:
        slack = grid + max(FLOAT_SLACK, SCORE_ROUNDING * radius)
        moved = (rows - 1) * (distance + slack) ** 2 + (2.0 * radius + slack) ** 2
        return float(moved * (1.0 + 2.0**-48))

    exponent = math.ceil(math.log2(2.0 * radius))
    while exponent > -30 and square(2.0**exponent) >= square(0.0) * 1.001**2:
        exponent -= 1
    part = Part([square(2.0**exponent)], [rows], exponent, radius)
    return Plan(rows, [rows], 1, SILENT, fitted_alone(part, budget), math.inf)


def scoring(manifest: dict[str, Any], method: dict[str, Any], rows: int) -> Plan:
    Loss(manifest["loss"])
    noise, bound = replace(SILENT, disclosed=rows), score_bound(method)
    if manifest["budget"] is not None:
        part = Part([score_square(bound)], [1], ROW_EXPONENT, bound)
        noise = fitted_alone(part, manifest["budget"])
    return Plan(rows, [rows], 1, SILENT, noise, math.inf, free=True)


PLANS = {
    "descent": descent,
    "private_model": private_model,
    "prediction": prediction,
    "scoring": scoring,
}
