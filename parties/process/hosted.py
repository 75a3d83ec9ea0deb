"""One run in a party's process: its node on its link, from the first hello to the result on disk.

It owns what a run writes for its party: status, snapshots, alignment, model; it knows no other run.
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
from hdpvfl_mq.runtime.in_short import finite
from hdpvfl_mq.runtime.keys import Keys
from hdpvfl_mq.runtime.metrics import Tally
from hdpvfl_mq.runtime.runner import FAREWELL_S, Runner
from hdpvfl_mq.runtime.snapshots import Snapshots
from hdpvfl_mq.runtime.status import Status, Stopwatch
from parties.assets import Assets
from parties.party import Party
from parties.phases import Phase, Training, setup_of, training_of
from parties.process.alignment_store import AlignmentStore
from parties.process.build import PartyFiles, build_node, gram_store
from parties.process.models import write_model, write_predictions
from parties.process.score_session import ScoreSession
from parties.rounds.private_model import PrivatePassive
from schemas.config import PartySettings
from schemas.ids import PartyRole


class PartyRun:
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
            # The process that got the end may have died before it acknowledged it.
            self.node.mailbox.owe_all()
        self._status, self._watch = Status(self._files.run / "status.json"), Stopwatch()
        self._alignments = AlignmentStore(self._files.alignments, settings.run)
        self._grams = gram_store(settings, own.policy, own.data)
        self._link: RunLink | None = None
        self.runner: Runner | None = None
        self.session: ScoreSession | None = None
        if own.model is not None and own.role == "active":
            self.session = ScoreSession(settings, self._files.run, own)

    def connect(
        self, link: RunLink, *, farewell_s: float = FAREWELL_S, tally: Tally | None = None
    ) -> Runner:
        """Create the pump that drives this run's node on a link."""
        self._link = link
        self.runner = Runner(
            self.node,
            link,
            patience_s=self._settings.patience_s,
            observe=self._observe,
            farewell_s=farewell_s,
            tally=tally,
        )
        return self.runner

    async def run(self) -> str:
        """Run to the end, write the result to disk and return the outcome."""
        assert self.runner is not None
        outcome = await self.runner.run()
        if outcome == "completed":
            self._write_result()
        self._book.close()
        self._observe(self.node)
        return outcome

    async def ask(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Ask for the scores of some people in an open session."""
        assert self.session is not None
        return await self.session.ask(asked, self._nudge)

    def end_session(self) -> None:
        """End a session that stays open."""
        assert self.session is not None
        self.session.desk.is_ending = True
        self._nudge()

    def _nudge(self) -> None:
        """Pass the session's next command to the role."""
        if self.session is None or self.runner is None:
            return
        if (command := self.session.next(self.node.state)) is not None:
            self.runner.give(command)

    @property
    def reason(self) -> str:
        """Why the run ended as it did; a reserve that was refused explains itself."""
        return ": ".join(filter(None, (str(self.node.state.reason), self._book.refusal)))

    @property
    def waiting(self) -> int:
        """The number of messages that no turn has taken yet."""
        return 0 if self._link is None else self._link.waiting

    def fields(self) -> dict[str, Any]:
        """The status fields that this party's operator may see."""
        role, node = self.node.role, self.node
        assert isinstance(role, Party)
        setup, training, own = setup_of(node.state), training_of(node.state), role.own
        noise = setup.plan.noise_of(self._settings.role) if setup else None
        spent = setup.plan.spent_by(self._settings.role) if setup else None
        delta, progress = self._book.delta, role.progress(node.state)
        late = set(node.parts.late)  # a release in parts stands still: the role cannot know
        return {
            **progress,
            "reason": self.reason,
            "waiting_for": sorted({*progress["waiting_for"], *late}),
            "party": self._settings.party,
            "role": self._settings.role,
            "rows": own.ids.people,
            "columns": own.data.X.shape[1],
            "epoch": node.epoch,
            "steps": node.steps,
            "releases": _releases(setup.plan, own.role, training) if setup else [],
            "epsilon_spent": finite(epsilon_shown(self._book.spent(), delta)),
            "epsilon_lifetime": finite(self._book.lifetime_epsilon()),
            "delta": delta,
            "mu": finite(_mu(spent)) if spent else None,
            "noise_std": noise.noise_std if noise else None,
            "sensitivity": finite(noise.sensitivity) if noise else None,
            "bytes_sent": self._link.bytes_sent if self._link else 0,
            "bytes_received": self._link.bytes_received if self._link else 0,
            "resends": self.runner.resends if self.runner else 0,
            "training_s": self._watch.elapsed_s,
        }

    def _observe(self, node: Node) -> None:
        self._nudge()
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
        elif self.session is not None and is_session(self.node.state):
            self.session.write()
        elif own.role == "active":
            path = self._settings.scores_out or folder / "predictions.csv"
            write_predictions(Path(path), own, self.node.state)


def is_session(state: Phase) -> bool:
    """Whether a run is, or was, a scoring session."""
    training = training_of(state)
    return training is not None and training.manifest.method.is_session


def _releases(plan: RunPlan, role: PartyRole, training: Training | None) -> list[dict[str, Any]]:
    """Each kind of release with its price; disclosed rows cost only those rows."""
    rounds = training.last_released + 1 if training else 0
    return [
        {
            "kind": kind,
            "rounds": rounds,
            "mu": finite(noise.mu),
            "noise_std": noise.noise_std,
            "sensitivity": finite(noise.sensitivity),
            "disclosed_rows": noise.disclosed_rows,
        }
        for kind, noise in plan.releases_of(role).items()
    ]


def _mu(spent: Spent) -> float:
    return float("inf") if spent.exact else mu_of_units(spent.mu2_units)
