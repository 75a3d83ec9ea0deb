"""summary.json: settings, results and cost of a run, under stable keys.

It owns the keys; every number comes from a process's own status, its model, or the evaluation.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hdpvfl_mq.app.console import rounds_per_s
from hdpvfl_mq.app.demo import evaluate
from hdpvfl_mq.app.demo.prepare import Demo
from hdpvfl_mq.app.joining import joining
from hdpvfl_mq.audit.figures import journal_head, summary_digest
from hdpvfl_mq.glm.families import family, unclipped
from hdpvfl_mq.methods.recommend import delta_warning
from hdpvfl_mq.runtime.files import write_private

EVALUATION = (
    "computed outside the protocol by the local demo, which holds all data; in a real federation "
    "no party could do this"
)


def build(demo: Demo, statuses: dict[str, dict[str, Any]], wall_s: float) -> dict[str, Any]:
    """Build the summary of a completed run."""
    manifest = demo.manifest
    active = statuses[manifest.active_party]
    budget = manifest.budget
    return {
        "run": manifest.run,
        "dataset": demo.dataset.name,
        "guarantee": manifest.guarantee,
        "guarantee_label": GUARANTEE_LABELS[manifest.guarantee],
        "conditional_on_preprocessing": True,
        "loss": manifest.loss.name,
        "penalty": manifest.penalty.name,
        "epsilon": budget.epsilon if budget else None,
        "delta": budget.delta if budget else None,
        "delta_warning": delta_warning(budget.delta, active["rows_common"]) if budget else None,
        "seed": manifest.seed,
        "rows_common": active["rows_common"],
        "rounds": active["rounds"],
        "wall_s": round(wall_s, 3),
        "rounds_per_s": rounds_per_s(active),
        "test": {**_test(demo), "evaluation": EVALUATION},
        "partners": _partners(demo),
        "parties": [_party(demo, party, statuses[party]) for party in demo.parties],
    }


def _partners(demo: Demo) -> dict[str, Any]:
    path = demo.folder / demo.manifest.active_party / "model.json"
    return joining(json.loads(path.read_text()))


GUARANTEE_LABELS = {
    "sound": "a theorem about this code (docs/privacy.md), conditional on preprocessing constants",
    "paper": "as published, not a proof; the ledger books what it really costs",
    "none": "no privacy: values left un-noised",
}


def write(demo: Demo, summary: dict[str, Any]) -> dict[str, Any]:
    """Write the file, point runs/latest at its folder, and return the written summary."""
    whole = with_digest(summary, demo.folder)
    write_private(demo.summary, json.dumps(whole, indent=2) + "\n")
    latest = demo.folder.parent / "latest"
    if latest.is_symlink() or not latest.exists():
        latest.unlink(missing_ok=True)
        latest.symlink_to(demo.folder.name)
    return whole


def with_digest(summary: dict[str, Any], run: Path) -> dict[str, Any]:
    """The summary with the heads of the journals beside it and its own digest, for audits."""
    heads = {
        path.parent.name: list(journal_head(path)) for path in sorted(run.glob("*/journal.db"))
    }
    whole = {**summary, "journals": heads}
    return {**whole, "digest": summary_digest(whole)}


def evaluation_inputs(demo: Demo) -> tuple[Any, ...]:
    """The inputs of `evaluate`: family, models, train and test rows of a completed run."""
    models = {p: json.loads((demo.folder / p / "model.json").read_text()) for p in demo.parties}
    train, test = (
        evaluate.prepared(models, {p: demo.rows(p, part) for p in demo.parties})
        for part in ("train", "test")
    )
    # Compare with the original labels, so that figures of all guarantees are comparable.
    return family(unclipped(demo.manifest.loss)), models, train, test


def _test(demo: Demo) -> dict[str, Any]:
    inputs = evaluation_inputs(demo)
    return {"rows": len(inputs[-1]["y"]), **evaluate.compare(*inputs)}


def _party(demo: Demo, party: str, status: dict[str, Any]) -> dict[str, Any]:
    keys = (
        "role",
        "rows",
        "columns",
        "epsilon_spent",
        "epsilon_lifetime",
        "delta",
        "mu",
        "noise_std",
        "sensitivity",
        "bytes_sent",
        "bytes_received",
        "releases",
    )
    return {
        "name": party,
        **{key: status.get(key) for key in keys},
        "journal": str(demo.folder / party / "journal.db"),
        "ledger": status.get("ledger"),
    }
