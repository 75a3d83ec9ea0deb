"""`hdpvfl plan`: what a budget buys, from public quantities only, before anybody connects.

It owns the comparison and the verdict in plain words; every figure comes from the functions that
plan a run. It never sees data: its inputs are the number of rows, the parties, loss and budget.
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hdpvfl_mq.app.commands.plan_noises import noise_choices, show_choices
from hdpvfl_mq.errors import HdpvflError
from hdpvfl_mq.methods import plan_run
from hdpvfl_mq.methods.private_model.plan import PrivateModelPlan
from hdpvfl_mq.methods.private_model.weights import scores_kept, signal_kept
from hdpvfl_mq.methods.recommend import Parties, delta_warning, recommend, sound_descent
from hdpvfl_mq.methods.run_plan import RunPlan
from hdpvfl_mq.privacy.accountant import epsilon_shown
from hdpvfl_mq.privacy.calibration import mu_of, noise_std_analytic
from hdpvfl_mq.runtime.files import create_private
from hdpvfl_mq.runtime.in_short import finite, number
from hdpvfl_mq.runtime.settings import check_settings, dump_settings
from schemas.config import RunManifest
from schemas.methods import PrivateModel
from schemas.model import LossSpec
from schemas.policy import PartyPolicy
from schemas.privacy import Budget

if TYPE_CHECKING:
    from rich.table import Table

CHOICES: dict[str, dict[str, Any]] = {
    "gaussian": {},
    "bounded": {"noise": "bounded"},
    "200 disclosed rows": {"disclosed_rows": 200},
}
LEARNS, LEARNS_SOME = 0.5, 0.1  # shares of the passive signal that remain after shrinkage


def command(options: argparse.Namespace) -> int:
    """`hdpvfl plan` with parsed options."""
    budget = check_settings(Budget, {"epsilon": options.epsilon, "delta": options.delta}, "options")
    loss = check_settings(LossSpec, {"name": options.loss}, "options: loss")
    lifetime = None
    if options.lifetime is not None:
        cap = {"epsilon": options.lifetime, "delta": options.delta}
        lifetime = check_settings(Budget, cap, "options: lifetime")
    partners = tuple(options.partners.split(",")) if options.partners else ()
    passives = len(partners) or options.passives
    found = figures(options.rows, passives, budget, loss, lifetime=lifetime)
    if options.write is not None:
        parties = (options.active, partners or tuple(f"passive-{n + 1}" for n in range(passives)))
        write(options.write, found["manifest"], options.run, parties)
    if options.json:
        print(json.dumps(found))
    else:
        show(found)
        if options.write is not None:
            print(f"written: {options.write}; hdpvfl train --manifest {options.write} proposes it")
    return 0


def figures(
    rows: int, passives: int, budget: Budget, loss: LossSpec, *, lifetime: Budget | None = None
) -> dict[str, Any]:
    """Figures of the recommended run, and of descent and the published noise at the same budget.

    `lifetime` is the cap that limits how many runs fit; the default is ten times the run's epsilon.
    """
    whole = lifetime or Budget(epsilon=min(10.0 * budget.epsilon, 1e3), delta=budget.delta)
    parties = ("active", tuple(f"passive-{n}" for n in range(1, passives + 1)))
    manifests = {
        "recommended": recommend("plan", parties, "sound", budget, loss),
        "descent": sound_descent("plan", parties, budget, loss),
        "published": recommend("plan", parties, "paper", budget, loss),
    }
    ways = {name: _way(manifest, rows, budget) for name, manifest in manifests.items()}
    chosen = manifests["recommended"]
    return {
        "rows": rows,
        "passives": passives,
        "epsilon": budget.epsilon,
        "delta": budget.delta,
        "mu": mu_of(budget.epsilon, budget.delta),
        "loss": loss.name,
        "ways": ways,
        "noises": noise_choices(budget, whole),
        "choices": _choices(chosen, rows),
        "verdict": _verdict(plan_run(chosen, rows)),
        "warning": delta_warning(budget.delta, rows),
        "manifest": json.loads(chosen.model_dump_json(exclude_none=True)),
    }


def write(path: Path, chosen: dict[str, Any], run: str, parties: Parties) -> None:
    """Write the recommended run as a manifest; an existing file is not replaced."""
    names = {"run": run, "active_party": parties[0], "passive_parties": list(parties[1])}
    # A policy as `hdpvfl join` writes it refuses runs with fewer common rows.
    rows_min = PartyPolicy.model_fields["rows_min"].default
    alignment = {**chosen["alignment"], "rows_min": max(rows_min, chosen["alignment"]["rows_min"])}
    fields = {**chosen, **names, "alignment": alignment}
    manifest = check_settings(RunManifest, fields, "options")
    text = "# The run the planner recommends; every field is in docs/settings.md.\n"
    text += "# Propose it with: hdpvfl train --manifest FILE\n"
    create_private(path, text + dump_settings(manifest))


def _way(manifest: RunManifest, rows: int, budget: Budget) -> dict[str, Any]:
    try:
        plan = plan_run(manifest, rows)
    except HdpvflError as refused:
        return {"refused": str(refused)}
    way: dict[str, Any] = {
        "method": manifest.method.kind,
        "guarantee": manifest.guarantee,
        "rounds": plan.rounds,
        "epochs": plan.schedule.epochs,
        "batch_rows": plan.schedule.batch_sizes[0],
    }
    for side in ("active", "passive"):
        noise = plan.noise_of(side)
        way[side] = {
            "noise_std": noise.noise_std,
            "sensitivity": finite(noise.sensitivity),
            "mu": finite(noise.mu),
            "epsilon_true": finite(epsilon_shown(plan.spent_by(side), budget.delta)),
            "largest_value": noise.value_bound,
            "signal_to_noise_per_epoch": noise.value_bound
            / noise.noise_std
            * math.sqrt(plan.schedule.batches),
            **{name: finite(value) for name, value in plan.settings_of(side).items()},
        }
        if manifest.guarantee == "paper":
            way[side]["noise_std_analytic"] = _analytic(noise.noise_std, budget)
    return way


def _analytic(classical: float, budget: Budget) -> float:
    """The noise that the published Delta needs at this budget, by the exact formula."""
    delta_published = classical * budget.epsilon / math.sqrt(2.0 * math.log(1.25 / budget.delta))
    return noise_std_analytic(delta_published, budget.epsilon, budget.delta)


def _verdict(plan: RunPlan) -> dict[str, Any]:
    """Whether the run will learn, from the share of a passive party's signal that noise leaves."""
    if not isinstance(plan, PrivateModelPlan):
        return {"signal_kept": None, "text": "no forecast for descent; rehearse it on public data"}
    kept = signal_kept(plan)
    if kept >= LEARNS:
        text = "the run learns: most of what the passive parties know reaches the model"
    elif kept >= LEARNS_SOME:
        text = "the run learns in part: more rows or a larger epsilon would bring more"
    else:
        text = (
            "the run hardly learns from the passive parties: the model will be about as good as "
            "the active party's alone; more rows or a larger epsilon are needed"
        )
    return {"signal_kept": kept, "text": text}


def _choices(recommended: RunManifest, rows: int) -> dict[str, Any]:
    """The share of the signal that remains under each way to release labels and scores."""
    found: dict[str, Any] = {}
    for name, change in CHOICES.items():
        if not isinstance(recommended.method, PrivateModel):
            return found
        method = PrivateModel(**{**dict(recommended.method), **change})
        try:
            plan = plan_run(RunManifest(**{**dict(recommended), "method": method}), rows)
        except HdpvflError as refused:
            found[name] = {"refused": str(refused)}
            continue
        assert isinstance(plan, PrivateModelPlan)
        found[name] = {"weights": signal_kept(plan), "scores": scores_kept(plan)}
    return found


def show(found: dict[str, Any]) -> None:
    """Print the comparison, the choices of noise and the verdict."""
    from rich.console import Console  # noqa: PLC0415 - start-up

    console = Console()
    console.print(
        f"{found['rows']:,} common rows, {found['passives']} passive, {found['loss']}, epsilon "
        f"{found['epsilon']:g} at delta {found['delta']:g} (mu = {found['mu']:.4f})",
        highlight=False,
    )
    console.print(_comparison(found["ways"]))
    console.print(
        "noise: what is added (published: by the classical formula); exact: what the published "
        "sensitivity needs by the exact formula; epsilon: what the run truly means; signal: the "
        "largest value over the noise, per epoch",
        style="dim",
        highlight=False,
    )
    show_choices(console, found["noises"])
    for name, choice in found["choices"].items():
        said = choice.get("refused") or (
            f"keeps {choice['weights']:.0%} of the signal in partners' weights, "
            f"{choice['scores']:.0%} of a score"
        )
        console.print(f"{name}: {said}", highlight=False)
    console.print(_settings_text(found["ways"]["recommended"]), highlight=False)
    kept = found["verdict"]["signal_kept"]
    share = "" if kept is None else f" ({kept:.0%} of the signal kept)"
    console.print(f"verdict: {found['verdict']['text']}{share}", highlight=False)
    if found["warning"]:
        console.print(f"warning: {found['warning']}", highlight=False)


def _comparison(ways: dict[str, Any]) -> Table:
    """The recommended run, descent and the published noise, with one line for each side."""
    from rich.table import Table  # noqa: PLC0415 - start-up

    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("", "rounds", "side", "noise", "exact", "sensitivity", "epsilon", "signal"):
        table.add_column(title)
    for name, way in ways.items():
        if "refused" in way:
            table.add_row(name, way["refused"])
            continue
        for side in ("active", "passive"):
            part = way[side]
            table.add_row(
                name if side == "active" else "",
                str(way["rounds"]) if side == "active" else "",
                side,
                number(part["noise_std"]),
                number(part.get("noise_std_analytic", "same")),
                number(part["sensitivity"]),
                number(part["epsilon_true"]),
                f"{part['signal_to_noise_per_epoch']:.3g}",
            )
    return table


def _settings_text(way: dict[str, Any]) -> str:
    if "refused" in way:
        return "recommended settings: none"
    parts = [f"method {way['method']}, epochs {way['epochs']}, batch {way['batch_rows']:,} rows"]
    for side in ("active", "passive"):
        known = ("weight_norm", "strength", "step_size", "received_clip")
        given = [f"{key} {number(way[side][key])}" for key in known if key in way[side]]
        parts += [f"{side}: {', '.join(given)}"] if given else []
    return "recommended settings: " + "; ".join(parts)
