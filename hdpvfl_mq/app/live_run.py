"""One run of a live federation: its progress, in a program or a notebook, and its result.

It owns what a caller sees of a run; live.py proposes runs and the services do the work.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hdpvfl_mq.app.live_model import LiveModel
from hdpvfl_mq.app.scoring_manifest import ScoresWanted
from hdpvfl_mq.errors import EXIT_BY_OUTCOME, error_of
from hdpvfl_mq.runtime.in_short import ENDED, run_in_short
from schemas.config import RunManifest

if TYPE_CHECKING:
    from hdpvfl_mq.app.live import Federation

POLL_S = 0.3


@dataclass(frozen=True)
class Progress:
    """The progress of a run, as this party sees it."""

    phase: str
    fields: dict[str, Any] = field(repr=False)

    @property
    def is_over(self) -> bool:
        """Whether the run has ended."""
        return self.phase in ENDED

    @property
    def share(self) -> float:
        """The share of rounds that are done, from 0 to 1."""
        rounds = self.fields.get("rounds") or 0
        return 1.0 if self.is_over else (self.fields.get("round") or 0) / rounds if rounds else 0.0

    def __str__(self) -> str:
        return run_in_short(self.fields)

    def _repr_html_(self) -> str:
        """Progress as HTML for a notebook."""
        from hdpvfl_mq.app.report.templates import rendered  # noqa: PLC0415 - start-up

        return rendered("progress.html.j2", share=f"{self.share:.4f}", text=str(self))


@dataclass(frozen=True)
class LiveRun:
    """One run of the federation."""

    federation: Federation
    manifest: RunManifest

    def __repr__(self) -> str:
        return f"LiveRun({self.name!r}, federation={self.federation.settings.federation!r})"

    @property
    def name(self) -> str:
        """The run's name, the same at every party."""
        return self.manifest.run

    def now(self) -> Progress:
        """The run's progress at this moment."""
        fields = self.federation.ask("runs")["runs"].get(self.name)
        return (
            Progress("proposed", {"phase": "proposed", "outcome": ""})
            if fields is None
            else (Progress(fields["phase"], fields))
        )

    def news(self) -> Iterator[Progress]:
        """Yield every change until the run is over."""
        said = ""
        while True:
            progress = self.now()
            if str(progress) != said:
                said = str(progress)
                yield progress
            if progress.is_over:
                return
            time.sleep(POLL_S)

    async def progress(self) -> AsyncIterator[Progress]:
        """Yield every change until the run is over, without blocking an event loop."""
        said = ""
        while True:
            progress = await asyncio.to_thread(self.now)
            if str(progress) != said:
                said = str(progress)
                yield progress
            if progress.is_over:
                return
            await asyncio.sleep(POLL_S)

    def show(self) -> dict[str, Any]:
        """Show every change, as one bar in a notebook and as lines elsewhere, and wait for the end.

        Returns this party's result, as `wait` does.
        """
        bar = _bar()
        for progress in self.news():
            if bar is None:
                print(progress, flush=True)
            else:
                bar.update(progress)
        return self.result(progress)

    def wait(self) -> dict[str, Any]:
        """Wait for the run and return this party's result; an error says why there is none."""
        return self.result(self.last())

    def last(self) -> Progress:
        """Wait for the run and return how it ended."""
        *_, last = self.news()
        return last

    def model(self, wanted: ScoresWanted | None = None) -> LiveModel:
        """Wait for a training and return its model, which predicts through the federation."""
        self.wait()
        return LiveModel(self.federation, self.manifest, wanted or ScoresWanted())

    def check(self, last: Progress) -> None:
        """Raise an error with the reason if the run did not complete."""
        outcome = last.fields["outcome"] or last.phase
        if outcome != "completed":
            again = f"; 'hdpvfl train --again {self.name}' tries under a new name"
            again = again if self.manifest.method.trains else ""
            raise error_of(EXIT_BY_OUTCOME.get(outcome, 1), f"{last}{again}")

    def result(self, last: Progress) -> dict[str, Any]:
        """The party's model, if the run completed."""
        self.check(last)
        model: dict[str, Any] = json.loads(self.model_file.read_text())
        return model

    @property
    def model_file(self) -> Path:
        """Where this party keeps its part of the model."""
        return self.federation.folder(self.name) / "model.json"


def _bar() -> Any:
    """A place of the notebook's cell that can be written again, or None outside a notebook."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if getattr(shell, "kernel", None) is None:
        return None
    display = import_module("IPython.display").display
    return display(Progress("proposed", {"phase": "proposed", "outcome": ""}), display_id=True)
