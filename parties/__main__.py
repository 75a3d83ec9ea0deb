"""One party's process: `python -m parties settings.toml` (what `hdpvfl party` runs)."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from hdpvfl_mq.methods.run_plan import RunPlan
from hdpvfl_mq.node.node import Node
from hdpvfl_mq.privacy.accountant import Spent, epsilon_shown
from hdpvfl_mq.privacy.plan import mu_of_units
from hdpvfl_mq.runtime.keys import load_keys
from hdpvfl_mq.runtime.process import run_process, say_how_it_ended, stop_on_signals
from hdpvfl_mq.runtime.profile import pin_threads
from hdpvfl_mq.runtime.runner import Runner
from hdpvfl_mq.runtime.snapshots import Snapshots
from hdpvfl_mq.runtime.status import Status, Stopwatch
from hdpvfl_mq.runtime.transport import DealerLink
from parties.assets import Assets
from parties.party import Party
from parties.phases import Training, setup_of, training_of
from parties.process.alignment_store import AlignmentStore
from parties.process.build import PartyFiles, build_node, gram_store, load_assets
from parties.process.ledger_book import LedgerBook
from parties.process.models import write_model, write_predictions
from parties.rounds.private_model import PrivatePassive
from schemas.config import PartySettings
from schemas.ids import PartyRole


def main(path: Path) -> int:
    """Run one party to the end of its run; the exit code says how it ended."""
    _threads = pin_threads()
    return run_process(PartySettings, path, _run, _failed)


def _failed(settings: PartySettings, reason: str) -> None:
    Status(PartyFiles(settings).run / "status.json").write({"phase": "stopped", "reason": reason})


async def _run(settings: PartySettings) -> str:
    keys = load_keys(Path(settings.keys))
    own = load_assets(settings, keys)
    files = PartyFiles(settings)
    snapshots = Snapshots(files.snapshot, keys.signing)
    node, book = build_node(settings, own, keys, snapshots.load())
    if node.outcome is not None:
        node.mailbox.owe_all()  # the process that heard the end may have died before it said so
    link = DealerLink(settings.broker, keys, bytes.fromhex(settings.broker_curve_key))
    status, watch = Status(files.run / "status.json"), Stopwatch()
    alignments = AlignmentStore(files.alignments, settings.run)
    grams = gram_store(settings, own.policy, own.data)

    def observe(node: Node) -> None:
        training = training_of(node.state)
        if training is not None:  # rounds are planned, so all parties have found the same rows
            alignments.keep(training.setup.alignment)
            if isinstance(training.rounds, PrivatePassive):
                grams.keep(training.rounds.gram)
        snapshots.see(node)
        watch.see(running=isinstance(node.state, Training) and not node.state.is_done)
        if status.due() or node.outcome is not None:
            fields = _fields(settings, node, book, link)
            status.write({**fields, "training_s": watch.elapsed_s})

    runner = Runner(node, link, patience_s=settings.patience_s, observe=observe)
    stop_on_signals(runner)
    try:
        outcome = await runner.run()
        if outcome == "completed":
            _write_result(files.run, own, node)
        book.close()
        observe(node)
    finally:
        link.close()
    say_how_it_ended(settings.party, outcome, node.state.reason)
    return outcome


def _write_result(folder: Path, own: Assets, node: Node) -> None:
    if own.model is None:
        write_model(folder / "model.json", own, node.state)
    elif own.role == "active":
        write_predictions(folder / "predictions.csv", own, node.state)


def _fields(
    settings: PartySettings, node: Node, book: LedgerBook, link: DealerLink
) -> dict[str, Any]:
    role = node.role
    assert isinstance(role, Party)
    setup, training, own = setup_of(node.state), training_of(node.state), role.own
    noise = setup.plan.noise_of(settings.role) if setup else None
    spent = setup.plan.spent_by(settings.role) if setup else None
    delta = book.delta
    return {
        **role.progress(node.state),
        "party": settings.party,
        "role": settings.role,
        "rows": len(own.ids.ids),
        "columns": own.data.X.shape[1],
        "epoch": node.epoch,
        "steps": node.steps,
        "releases": _releases(setup.plan, settings.role, training) if setup else [],
        "epsilon_spent": _json(epsilon_shown(book.spent(), delta)),
        "epsilon_lifetime": _json(book.lifetime_epsilon()),
        "delta": delta,
        "mu": _json(_mu(spent)) if spent else None,
        "noise_std": noise.noise_std if noise else None,
        "sensitivity": _json(noise.sensitivity) if noise else None,
        "bytes_sent": link.bytes_sent,
        "bytes_received": link.bytes_received,
    }


def _releases(plan: RunPlan, role: PartyRole, training: Training | None) -> list[dict[str, Any]]:
    """Every kind of release with its own price; disclosed rows cost only those rows."""
    rounds = training.last_released + 1 if training else 0
    return [
        {
            "kind": kind,
            "rounds": rounds,
            "mu": _json(noise.mu),
            "noise_std": noise.noise_std,
            "sensitivity": _json(noise.sensitivity),
            "disclosed_rows": noise.disclosed_rows,
        }
        for kind, noise in plan.releases_of(role).items()
    ]


def _mu(spent: Spent) -> float:
    return float("inf") if spent.exact else mu_of_units(spent.mu2_units)


def _json(number: float) -> float | str:
    return number if number < float("inf") else "infinite"


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
