"""Which rows a round uses, how large its step is, and when to stop: all from public numbers.

It owns the fixed partition of rows into batches; it knows no data. Every party sorts its common
rows by a keyed hash of the id, so a batch is a contiguous slice of every party's block.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from hdpvfl_mq.errors import SettingsError


@dataclass(frozen=True)
class Schedule:
    """Epochs over a fixed partition of `rows` into batches of at most `batch_rows` rows.

    *Guarantee*: every row is in exactly one batch, no batch is empty, sizes differ by at most
    one, and the same batches return every epoch.
    """

    rows: int
    batch_rows: int
    epochs: int

    def __post_init__(self) -> None:
        if min(self.rows, self.batch_rows, self.epochs) < 1:
            raise SettingsError("rows, batch_rows and epochs must all be at least 1")

    @property
    def batches(self) -> int:
        """Batches of an epoch, the paper's r."""
        return -(-self.rows // min(self.batch_rows, self.rows))

    @property
    def rounds(self) -> int:
        """The paper's T."""
        return self.epochs * self.batches

    @cached_property
    def batch_sizes(self) -> tuple[int, ...]:
        """Rows of each batch of an epoch."""
        return tuple(s.stop - s.start for s in map(self.batch, range(self.batches)))

    def batch(self, round_: int) -> slice:
        """The rows of a round."""
        self._check(round_)
        index = round_ % self.batches
        return slice(index * self.rows // self.batches, (index + 1) * self.rows // self.batches)

    def epoch(self, round_: int) -> int:
        """The epoch a round belongs to, from 0."""
        self._check(round_)
        return round_ // self.batches

    def _check(self, round_: int) -> None:
        if not 0 <= round_ < self.rounds:
            raise SettingsError(f"round {round_} is outside the schedule of {self.rounds} rounds")


@dataclass(frozen=True)
class StepSize:
    """eta / (1 + decay epoch): a public step size."""

    eta: float
    decay: float = 0.0

    def __post_init__(self) -> None:
        if not (self.eta > 0.0 and self.decay >= 0.0):
            raise SettingsError("eta must be positive and decay not negative")

    def at(self, epoch: int) -> float:
        """The step size of every round of an epoch."""
        return self.eta / (1.0 + self.decay * epoch)


def stops(energies: Sequence[float], *, patience: int, tolerance: float) -> bool:
    """Whether `patience` epochs brought no fall in the energy of the released residuals.

    *Guarantee*: it sees released values only, so stopping is post-processing, and every party
    reaches the same decision alone.
    """
    if len(energies) <= patience:
        return False
    best_before = min(energies[:-patience])
    return min(energies[-patience:]) >= best_before * (1.0 - tolerance)
