"""One run in a party's process: its node on its link, from the first hello to the result on disk.

It owns what a run writes for its owner: status, snapshots, alignment, model; it knows no other run.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hdpvfl_mq.methods.run_plan import RunPlan
from hdpvfl_mq.node.node import Node
from hdpvfl_mq.privacy.accountant import Spent, epsilon_shown
from hdpvfl_mq.privacy.ledger_store import Ledger
from hdpvfl_mq.privacy.plan import mu_of_units
from hdpvfl_mq.runtime.hub import RunLink
from hdpvfl_mq.runtime.keys import Keys
from hdpvfl_mq.runtime.runner import FAREWELL_S, Runner
from hdpvfl_mq.runtime.snapshots import Snapshots
from hdpvfl_mq.runtime.status import Status, Stopwatch
from parties.assets import Assets
from parties.party import Party
from parties.phases import Training, setup_of, training_of
from parties.process.alignment_store import AlignmentStore
from parties.process.build import PartyFiles, build_node, gram_store
from parties.process.models import write_model, write_predictions
from parties.rounds.private_model import PrivatePassive
from schemas.config import PartySettings
from schemas.ids import PartyRole


class HostedRun:
    """A party's part in one run."""

    def __init__(
        self,
        settings: PartySettings,
        own: Assets,
        keys: Keys,
        ledger: Ledger | None = None,
    ) -> None:
        self._settings, self._own = settings, own
        self._files = PartyFiles(settings)
        self._snapshots = Snapshots(self._files.snapshot, keys.signing)
        self.node, self._book = build_node(settings, own, keys, self._snapshots.load(), ledger)
        if self.node.outcome is not None:
            # The process that heard the end may have died before it said so.
            self.node.mailbox.owe_all()
        self._status, self._watch = Status(self._files.run / "status.json"), Stopwatch()
        self._alignments = AlignmentStore(self._files.alignments, settings.run)
        self._grams = gram_store(settings, own.policy, own.data)
        self._link: RunLink | None = None
        self.runner: Runner | None = None

    def connect(self, link: RunLink, *, farewell_s: float = FAREWELL_S) -> Runner:
        """Get ready to run on a link."""
        self._link = link
        self.runner = Runner(
            self.node,
            link,
            patience_s=self._settings.patience_s,
            observe=self._observe,
            farewell_s=farewell_s,
        )
        return self.runner

    async def run(self) -> str:
        """To the outcome, with the result on disk."""
        assert self.runner is not None
        outcome = await self.runner.run()
        if outcome == "completed":
            self._write_result()
        self._book.close()
        self._observe(self.node)
        return outcome

    @property
    def reason(self) -> str:
        """Why the run ended as it did."""
        return str(self.node.state.reason)

    def fields(self) -> dict[str, Any]:
        """What this party's own operator may see of the run."""
        role, node = self.node.role, self.node
        assert isinstance(role, Party)
        setup, training, own = setup_of(node.state), training_of(node.state), role.own
        noise = setup.plan.noise_of(self._settings.role) if setup else None
        spent = setup.plan.spent_by(self._settings.role) if setup else None
        delta = self._book.delta
        return {
            **role.progress(node.state),
            "party": self._settings.party,
            "role": self._settings.role,
            "rows": len(own.ids.ids),
            "columns": own.data.X.shape[1],
            "epoch": node.epoch,
            "steps": node.steps,
            "releases": _releases(setup.plan, own.role, training) if setup else [],
            "epsilon_spent": _json(epsilon_shown(self._book.spent(), delta)),
            "epsilon_lifetime": _json(self._book.lifetime_epsilon()),
            "delta": delta,
            "mu": _json(_mu(spent)) if spent else None,
            "noise_std": noise.noise_std if noise else None,
            "sensitivity": _json(noise.sensitivity) if noise else None,
            "bytes_sent": self._link.bytes_sent if self._link else 0,
            "bytes_received": self._link.bytes_received if self._link else 0,
            "training_s": self._watch.elapsed_s,
        }

    def _observe(self, node: Node) -> None:
        training = training_of(node.state)
        if training is not None:  # rounds are planned, so all parties have found the same rows
            self._alignments.keep(training.setup.alignment)
            if isinstance(training.rounds, PrivatePassive):
                self._grams.keep(training.rounds.gram)
        self._snapshots.see(node)
        self._watch.see(running=isinstance(node.state, Training) and not node.state.is_done)
        if self._status.due() or node.outcome is not None:
            self._status.write(self.fields())

    def _write_result(self) -> None:
        folder, own = Path(self._files.run), self._own
        if own.model is None:
            write_model(folder / "model.json", own, self.node.state)
        elif own.role == "active":
            write_predictions(folder / "predictions.csv", own, self.node.state)


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
