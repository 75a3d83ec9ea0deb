"""Compare training the demo with scikit-learn on the same rows, replay and audit with their run.

It owns the comparison; `hdpvfl up`, `replay` and `audit` run as a user would run them.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from hdpvfl_mq.app.demo import evaluate
from hdpvfl_mq.glm.block import scale_rows
from scripts.benches.row import Row, times

PASSIVES = 2
STRENGTH = 1e-4  # the planner's penalty without privacy


def run_hdpvfl(folder: Path, *arguments: str) -> tuple[dict[str, Any], float, float]:
    """Run a command: returns its JSON, wall time and the processor time of all its processes."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "hdpvfl_mq.app.cli", *arguments, "--json"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    wall_s = time.perf_counter() - began
    if done.returncode:
        said = (done.stderr or done.stdout).strip()[-200:]
        raise RuntimeError(f"hdpvfl {arguments[0]} ended with {done.returncode}: {said}")
    now = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime
    return json.loads(done.stdout.splitlines()[-1]), wall_s, cpu_s


def training(dataset: str) -> Iterator[Row]:
    """The federation without privacy, the default with it, scikit-learn in one process."""
    for guarantee in ("none", "sound"):
        # A folder for each: the cap of a data set's ledger is that of its first run.
        with tempfile.TemporaryDirectory() as name:
            yield from _trained(Path(name), dataset, guarantee)


def _trained(folder: Path, dataset: str, guarantee: str) -> list[Row]:
    up = ("up", "--dataset", dataset, "--passives", str(PASSIVES), "--guarantee", guarantee)
    summary, wall_s, cpu_s = run_hdpvfl(folder, *up)
    run = folder / "runs" / summary["run"]
    peer_s, peer_auc = _central(run)
    trained_s = json.loads((run / "active" / "status.json").read_text())["training_s"]
    return [
        Row(
            f"training {dataset}, {guarantee}, {summary['rounds']} rounds",
            f"{trained_s:.3f} s, auc {summary['test']['auc']:.3f}",
            f"scikit-learn {peer_s:.4f} s, auc {peer_auc:.3f}",
            times(trained_s, peer_s),
            key=f"training.{dataset}.{guarantee}",
            value=trained_s,
        ),
        Row(
            "  with start, entity resolution and report",
            f"{wall_s:.1f} s, {cpu_s:.1f} s CPU",
            f"scikit-learn {peer_s:.4f} s",
            times(wall_s, peer_s),
            times(cpu_s, peer_s),
        ),
        _replay(folder, run, trained_s, f"replay.{dataset}.{guarantee}"),
        _audit(folder, run, wall_s, f"audit.{dataset}.{guarantee}"),
    ]


def _central(run: Path) -> tuple[float, float]:
    """Seconds and test AUC of scikit-learn on the same rows, scaled as the parties scale them."""
    from sklearn.linear_model import LogisticRegression  # noqa: PLC0415 - late, for its size
    from sklearn.metrics import roc_auc_score  # noqa: PLC0415 - late, for its size

    models = {p.parent.name: json.loads(p.read_text()) for p in run.glob("*/model.json")}
    parts = {}
    for part in ("train", "test"):
        files = {party: run / "data" / f"{party}_{part}.csv" for party in models}
        found = evaluate.prepared(models, files)
        scaled = [scale_rows(found["features"][party]) for party in sorted(models)]
        parts[part] = (np.hstack(scaled), found["y"])
    X, y = parts["train"]
    model = LogisticRegression(C=1.0 / (STRENGTH * len(y)), max_iter=1000)
    taken = []
    for _ in range(5):
        began = time.perf_counter()
        model.fit(X, y)
        taken.append(time.perf_counter() - began)
    X, y = parts["test"]
    return float(np.median(taken)), float(roc_auc_score(y, model.decision_function(X)))


def _replay(folder: Path, run: Path, trained_s: float, key: str) -> Row:
    result, wall_s, _ = run_hdpvfl(folder, "replay", str(run), "--party", "active")
    took = result["seconds"]
    return Row(
        f"  replay of the active party, {result['steps']} steps",
        f"{took:.3f} s folding and reading, {wall_s:.1f} s with start",
        f"training {trained_s:.3f} s",
        times(took, trained_s),
        key=key,
        value=took / trained_s,
    )


def _audit(folder: Path, run: Path, run_s: float, key: str) -> Row:
    """All checks of `hdpvfl audit` over all journals of the run, with the start of the command."""
    result, wall_s, cpu_s = run_hdpvfl(folder, "audit", str(run))
    checks = sum(each["passed"] for each in result["checks"])
    return Row(
        f"  audit of all journals, {checks} checks passed",
        f"{wall_s:.2f} s, {cpu_s:.2f} s CPU, with start",
        f"the run {run_s:.2f} s",
        times(wall_s, run_s),
        key=key,
        value=wall_s / run_s,
    )
