"""More than two classes in the demo: one federation for each class, one after the other.

It owns the order of these runs and their joint summary; each is an ordinary run with its own
manifest, journals and ledger entries, and is charged as one. The run of a class is named
`<run>-<class>`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table as RichTable

from hdpvfl_mq.app import console as shown
from hdpvfl_mq.app.commands.ledger import opened_copy
from hdpvfl_mq.app.demo import evaluate, summary
from hdpvfl_mq.app.demo.prepare import Demo, write_demo
from hdpvfl_mq.glm.multiclass import decide
from hdpvfl_mq.privacy.accountant import Spent, epsilon_shown
from hdpvfl_mq.runtime.in_short import finite
from hdpvfl_mq.runtime.settings import check_settings, dump_settings
from schemas.config import RunManifest

Train = Callable[[Demo, Path, Console], dict[str, Any]]


def class_demos(demo: Demo) -> dict[str, Demo]:
    """One demo for each class."""
    found = {}
    for name in demo.dataset.card.classes:
        run = f"{demo.manifest.run}-{name}"
        fields = {**demo.manifest.model_dump(), "run": run}
        found[name] = replace(
            demo,
            folder=demo.folder.with_name(run),
            manifest=check_settings(RunManifest, fields, "options"),
            dataset=replace(demo.dataset, positive=name),
        )
    return found


def write_demos(demo: Demo, *, state: Path, port: int) -> None:
    """Write everything the processes of all runs read."""
    for one in class_demos(demo).values():
        write_demo(one, state=state, port=port)
        (one.folder / "settings" / "dataset").write_text(demo.dataset.name)
    demo.settings("manifest").parent.mkdir(parents=True, exist_ok=True)
    demo.settings("manifest").with_name("dataset").write_text(demo.dataset.name)
    # Written last, because --resume looks for the newest manifest, which must be the whole run's.
    demo.settings("manifest").write_text(dump_settings(demo.manifest))


def run(demo: Demo, state: Path, console: Console, train: Train) -> dict[str, Any]:
    """Train every class that has no summary yet, then score all classes together."""
    demos = class_demos(demo)
    results = {
        name: json.loads(one.summary.read_text())
        if one.summary.exists()
        else train(one, state, console)
        for name, one in demos.items()
    }
    first = next(iter(results.values()))
    result = {
        **{key: first[key] for key in _SHARED},
        "run": demo.manifest.run,
        "classes": {name: results[name]["run"] for name in demos},
        "rounds": sum(one["rounds"] for one in results.values()),
        "wall_s": round(sum(one["wall_s"] for one in results.values()), 3),
        "test": {**_test(demos), "evaluation": summary.EVALUATION},
        "parties": [_party(demo, state, party, results.values()) for party in demo.parties],
    }
    result = summary.write(demo, result)
    _closing(console, result, demo, state)
    return result


_SHARED = (
    "dataset",
    "guarantee",
    "guarantee_label",
    "conditional_on_preprocessing",
    "loss",
    "penalty",
    "epsilon",
    "delta",
    "seed",
    "rows_common",
)


def _test(demos: dict[str, Demo]) -> dict[str, Any]:
    """Accuracy of predicting the class with the largest score: joint, active alone, central."""
    labels, scores = [], []
    for one in demos.values():
        inputs = summary.evaluation_inputs(one)
        labels.append(inputs[-1]["y"])
        scores.append(evaluate.thetas(*inputs))
    y = decide(labels)  # the class whose run labels the row 1
    right = {
        name: float(np.mean(decide([found[name] for found in scores]) == y)) for name in scores[0]
    }
    return {
        "rows": len(y),
        "accuracy": right.pop("joint"),
        **{name: {"accuracy": value} for name, value in right.items()},
    }


def _party(
    demo: Demo, state: Path, party: str, results: Iterable[dict[str, Any]]
) -> dict[str, Any]:
    """The cost of each class and of all together for a party, from its ledger."""
    runs = [one["run"] for one in results]
    ledger_file = state / party / "ledger.db"
    with opened_copy(ledger_file) as ledger:
        dataset = demo.dataset.name
        delta = ledger.books.caps[dataset].delta
        spent = [ledger.books.runs[dataset, run].spent for run in runs]
        lifetime = ledger.books.epsilon_spent(dataset)
    together = Spent(
        sum(one.mu2_units for one in spent),
        sum(one.tau_units for one in spent),
        sum(one.exact for one in spent),
        tuple(sorted(units for one in spent for units in one.pure)),
    )
    return {
        "name": party,
        "epsilon_classes": [finite(epsilon_shown(one, delta)) for one in spent],
        "epsilon_spent": finite(epsilon_shown(together, delta)),
        "epsilon_lifetime": finite(lifetime),
        "delta": delta,
        "ledger": str(ledger_file.absolute()),
    }


def _closing(console: Console, result: dict[str, Any], demo: Demo, state: Path) -> None:
    console.print(
        f"\n{result['run']}: {result['loss']}, {result['guarantee']}, one against the rest: "
        f"{shown.plural(len(result['classes']), 'run')}, each charged as one",
        highlight=False,
    )
    console.print(f"guarantee: {result['guarantee_label']}", style="dim", highlight=False)
    table = RichTable(box=None, pad_edge=False, header_style="bold")
    table.add_column("epsilon")
    for title in (*result["classes"], "together", "lifetime", "delta"):
        table.add_column(title, justify="right")
    for party in result["parties"]:
        costs = [*party["epsilon_classes"], party["epsilon_spent"], party["epsilon_lifetime"]]
        table.add_row(party["name"], *(shown.number(cost) for cost in (*costs, party["delta"])))
    console.print(table)
    files = {
        "summary": os.path.relpath(demo.summary),
        "runs": os.path.relpath(demo.folder) + "-<class>",
        "ledgers": os.path.relpath(state) + "/<party>/ledger.db",
    }
    shown.scores_and_files(console, result["test"], files)
