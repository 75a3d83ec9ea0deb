"""`hdpvfl up`: run a whole federation on this machine, from data set to summary.

It owns the order of the demo; the processes it starts are those of production.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from rich.console import Console

from hdpvfl_mq.app import console as shown
from hdpvfl_mq.app import defaults
from hdpvfl_mq.app.demo.cluster import Cluster
from hdpvfl_mq.app.demo.further import data_folder
from hdpvfl_mq.app.demo.nursery import Nursery
from hdpvfl_mq.app.demo.own_files import OwnFiles, id_rules, load_own
from hdpvfl_mq.app.demo.prepare import (
    ACTIVE,
    Demo,
    check_port,
    dataset_of,
    free_port,
    passive_names,
    write_rows,
    write_settings,
)
from hdpvfl_mq.app.demo.rows import common_rows, split_rows
from hdpvfl_mq.app.run_name import run_name
from hdpvfl_mq.data.bundled import SplitDataset, load_dataset
from hdpvfl_mq.data.cards import Card
from hdpvfl_mq.errors import OperatorError, SettingsError
from hdpvfl_mq.glm.families import FAMILIES
from hdpvfl_mq.methods import plan_run
from hdpvfl_mq.methods.recommend import Parties, penalty_named, recommend, sound_descent
from hdpvfl_mq.runtime.settings import (
    check_choice,
    check_settings,
    describe_mistakes,
    load_settings,
)
from schemas.config import AlignmentSpec, IdRules, RunManifest
from schemas.ids import MAX_PASSIVES
from schemas.methods import Guarantee, unknown_options
from schemas.model import LossName, LossSpec, PenaltyName
from schemas.privacy import Budget


@dataclass(frozen=True)
class UpOptions:
    """Options of `hdpvfl up`; None leaves the choice to the data set or the planner."""

    dataset: str = defaults.DATASET
    passives: int = defaults.PASSIVES
    epsilon: float = defaults.EPSILON
    delta: float = defaults.DELTA
    guarantee: str = defaults.GUARANTEE
    epochs: int | None = None
    batch: int | None = None
    loss: str | None = None
    penalty: str | None = None
    noise: str | None = None
    disclosed_rows: int | None = None
    held_out_rows: int | None = None
    seed: int = defaults.SEED
    out: Path = Path()
    port: int | None = None
    run: str | None = None
    resolve_again: bool = False
    own: OwnFiles | None = None


def start(options: UpOptions, console: Console, nursery: Nursery) -> dict[str, Any]:
    """Prepare and run a new federation, whose processes `nursery` starts."""
    if options.port is not None:
        check_port(options.port)
    demo, state = prepare_demo(options), options.out / "state"
    if any(state.glob("*/ledger.db")):
        from hdpvfl_mq.app.used_folder import refuse_other_delta  # noqa: PLC0415 - start-up

        refuse_other_delta(state, demo.parties, demo.dataset.name, demo.manifest.budget)
    port, before = options.port or free_port(), nothing
    if demo.dataset.card.classes:
        from hdpvfl_mq.app.demo import multiclass  # noqa: PLC0415 - start-up

        multiclass.write_demos(demo, state=state.absolute(), port=port)
    else:
        split = split_rows(demo.tables(), seed=demo.seed)
        nursery.plan_ahead(json.loads(demo.manifest.model_dump_json()), common_rows(split))
        write_settings(demo, state=state.absolute(), port=port)
        before = partial(write_rows, demo, split)
    return _run(demo, state, console, nursery, before)


def nothing() -> None:
    """Do nothing: everything is written."""


def resume(run: str, options: UpOptions, console: Console, nursery: Nursery) -> dict[str, Any]:
    """Continue a run that was interrupted."""
    runs = options.out / "runs"
    name = last_run(runs) if run == "last" else run
    folder = (runs / name).absolute()
    if not (folder / "settings" / "dataset").exists():
        raise SettingsError(f"there is no training {name!r} in {runs}; start without --resume")
    dataset = dataset_of(folder, further=data_folder(), cache=options.out / "state" / "data")
    for name_of_class in dataset.card.classes:  # the run of one class resumes with the whole
        folder = folder.with_name(folder.name.removesuffix(f"-{name_of_class}"))
    manifest = load_settings(RunManifest, folder / "settings" / "manifest.toml")
    demo = Demo(folder, manifest, dataset, manifest.seed)
    return _run(demo, options.out / "state", console, nursery, nothing)


def last_run(runs: Path) -> str:
    """The run that was started last."""
    # A prediction names no data set: it is short, so it is repeated instead of resumed.
    found = [p for p in runs.glob("*/settings/dataset") if "latest" not in p.parts]
    if not found:
        raise SettingsError(f"there is no run in {runs}; start without --resume")
    return max(found, key=lambda path: path.stat().st_mtime).parent.parent.name


def prepare_demo(options: UpOptions) -> Demo:
    """Check every option and derive the manifest, before anything is written or started."""
    check_choice(Guarantee, options.guarantee, "guarantee")
    budget = check_settings(Budget, {"epsilon": options.epsilon, "delta": options.delta}, "options")
    dataset, parties = _dataset(options)
    run = options.run or run_name(dataset.name)
    folder = (options.out / "runs" / run).absolute()
    if folder.exists():
        raise OperatorError(f"{folder} exists; choose another run name, or use --resume {run}")
    try:
        base = _recommended(options, budget, run, _loss(options, dataset.card), parties)
        manifest = _manifest(options, base, id_rules(dataset))
    except ValidationError as wrong:
        raise SettingsError(f"options: {describe_mistakes(wrong)}") from None
    plan_run(manifest, max(2, dataset.card.rows // 2))  # refuse bad step sizes here
    return Demo(folder, manifest, dataset, options.seed)


def _dataset(options: UpOptions) -> tuple[SplitDataset, Parties]:
    """The data set, and the names of the parties that share its columns."""
    if options.own is not None:
        return load_own(options.own), options.own.parties
    cache = options.out / "state" / "data"
    dataset = load_dataset(options.dataset, folder=data_folder(), cache=cache)
    columns = min(MAX_PASSIVES, dataset.card.columns[1])
    if not 1 <= options.passives <= columns:
        raise SettingsError(
            f"passives = {options.passives}: the columns of {options.dataset} can be split "
            f"among 1 to {columns} passive parties; choose a number in that range"
        )
    return dataset, (ACTIVE, passive_names(options.passives))


def _loss(options: UpOptions, card: Card) -> LossSpec:
    default = card.loss
    if options.loss is None or options.loss == default.name:
        return default
    name = check_choice(LossName, options.loss, "loss")
    if FAMILIES[name].label_kind != FAMILIES[default.name].label_kind:
        if card.classes:
            raise SettingsError(f"loss = {name!r} does not fit class labels: choose logistic")
        return LossSpec(name=name)
    return LossSpec(name=name, label_low=default.label_low, label_high=default.label_high)


def _recommended(
    options: UpOptions, budget: Budget, run: str, loss: LossSpec, parties: Parties
) -> RunManifest:
    guarantee = check_choice(Guarantee, options.guarantee, "guarantee")
    base = recommend(run, parties, guarantee, budget, loss)
    if unknown_options(base.method, ("epochs",)) and (
        options.epochs or options.batch or options.penalty
    ):
        return sound_descent(run, parties, budget, loss)  # these options are descent's
    return base


def _manifest(options: UpOptions, base: RunManifest, ids: IdRules) -> RunManifest:
    """The recommended manifest, changed by the options."""
    changes: dict[str, Any] = {
        "seed": options.seed,
        "alignment": AlignmentSpec(ids=ids, rows_min=50, reuse=not options.resolve_again),
    }
    wanted = {
        "epochs": options.epochs,
        "batch_rows": options.batch,
        "noise": options.noise,
        "disclosed_rows": options.disclosed_rows,
        "held_out_rows": options.held_out_rows,
    }
    method = base.method.model_dump() | {k: v for k, v in wanted.items() if v is not None}
    if options.penalty is not None:
        penalty = check_choice(PenaltyName, options.penalty, "penalty")
        changes["penalty"] = penalty_named(base, penalty)
    merged = base.model_dump() | {
        key: value if isinstance(value, int) else value.model_dump()
        for key, value in changes.items()
    }
    merged["method"] = method
    return check_settings(RunManifest, merged, "options")


def _run(
    demo: Demo, state: Path, console: Console, nursery: Nursery, before: Callable[[], None]
) -> dict[str, Any]:
    """Run a demo; `before` writes its rows while its processes start."""
    try:
        return _trained(demo, state, console, partial(_train, nursery=nursery, before=before))
    except KeyboardInterrupt:
        out, run = os.path.relpath(state.parent), demo.manifest.run
        place = "" if out == "." else f" --out {out}"
        raise KeyboardInterrupt(
            f"stopped; hdpvfl up --resume {run}{place} continues (make run-parties RESUME={run})"
        ) from None


def _trained(
    demo: Demo,
    state: Path,
    console: Console,
    train: Callable[[Demo, Path, Console], dict[str, Any]],
) -> dict[str, Any]:
    if demo.dataset.card.classes:
        from hdpvfl_mq.app.demo import multiclass  # noqa: PLC0415 - start-up

        return multiclass.run(demo, state, console, train)
    result = train(demo, state, console)
    shown.closing(console, result, _files(demo, state), folder=os.path.relpath(state.parent))
    return result


def _train(
    demo: Demo, state: Path, console: Console, nursery: Nursery, before: Callable[[], None]
) -> dict[str, Any]:
    """Run one federation, from the start of its processes to its summary."""
    began = time.monotonic()
    partners = shown.plural(len(demo.manifest.passive_parties), "partner")
    console.print(demo.manifest.run, highlight=False)
    console.print(
        f"starting   broker, {demo.manifest.active_party} and {partners}, one process each",
        highlight=False,
    )
    with Cluster(demo, nursery) as cluster:
        before()
        statuses = _watched(cluster, demo, console)
        for party in demo.parties:
            statuses[party]["ledger"] = str((state / party / "ledger.db").absolute())
        from hdpvfl_mq.app.demo import summary  # noqa: PLC0415 - imported while the parties worked

        cluster.begin_stop()  # the processes end while this one evaluates
        result = summary.build(demo, statuses, time.monotonic() - began)
    return summary.write(demo, result)


def run_processes(demo: Demo, console: Console, nursery: Nursery) -> dict[str, dict[str, Any]]:
    """Run all processes of a demo to their end and show progress; returns their statuses."""
    with Cluster(demo, nursery) as cluster:
        return _watched(cluster, demo, console)


def _watched(cluster: Cluster, demo: Demo, console: Console) -> dict[str, dict[str, Any]]:
    with _watcher(demo, console) as watcher:
        cluster.run(watcher.show, partial(import_module, "hdpvfl_mq.app.demo.summary"))
    return cluster.statuses()


def _watcher(demo: Demo, console: Console) -> shown.Watcher:
    manifest = demo.manifest
    return shown.Watcher(console, manifest.active_party, is_scoring=not manifest.method.trains)


def _files(demo: Demo, state: Path) -> dict[str, str]:
    def near(path: Path) -> str:
        return os.path.relpath(path)

    return {
        "summary": near(demo.summary),
        "journals": near(demo.folder) + "/<party>/journal.db",
        "models": near(demo.folder) + "/<party>/model.json",
        "ledgers": near(state) + "/<party>/ledger.db",
    }
