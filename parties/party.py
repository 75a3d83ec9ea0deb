"""A party as a role: its assets and the table of its side.

It owns nothing but the way from inputs to the tables; what a move does is in member.py,
alignment.py, witness.py, active.py, passive.py and parties/rounds.
"""

from __future__ import annotations

from typing import Any

from hdpvfl_mq.machine import Input, Moves, Step, dispatch
from parties import active, passive, snapshot
from parties.assets import Assets
from parties.phases import (
    ActiveRounds,
    Aligning,
    Over,
    Phase,
    Running,
    Starting,
    Training,
    WithRows,
)


class Party:
    """The role of one party."""

    def __init__(self, own: Assets) -> None:
        self.own = own
        self.name = own.party
        self.moves: Moves = active.MOVES if own.role == "active" else passive.MOVES

    def initial(self) -> Phase:
        """Nothing has happened."""
        return Starting()

    def step(self, state: Phase, given: Input) -> Step[Any]:
        """One move of the side's table."""
        return dispatch(self.moves, self.own, state, given)

    def progress(self, state: Phase) -> dict[str, Any]:
        """What this party's own operator may see; the active party's own loss among it."""
        training = state.trained if isinstance(state, Over) else state
        rows = training if isinstance(training, WithRows) else None
        rounds = training.rounds if isinstance(training, Training) else None
        shown: dict[str, Any] = {
            "phase": type(state).__name__.lower(),
            "round": training.round if isinstance(training, Training) else 0,
            "rounds": rows.setup.plan.rounds if rows else 0,
            "rows_common": rows.setup.plan.rows if rows else 0,
            "align": _aligned_blocks(state),
            "align_kept": bool(rows and not rows.session and not rows.align_total),
            "waiting_for": list(state.waiting_for),
            "outcome": state.outcome if isinstance(state, Over) else "",
            "reason": state.reason,
        }
        if self.own.role == "active":
            losses = rounds.own_losses if isinstance(rounds, ActiveRounds) else ()
            shown["loss"] = losses[-1] if losses else None
        return shown

    def freeze(self, state: Phase) -> bytes | None:
        """The state as bytes, while it trains."""
        return snapshot.freeze(self.own, state)

    def thaw(self, frozen: bytes) -> Phase | None:
        """The state again, with the same rows, secret and alignment."""
        return snapshot.thaw(self.own, frozen)


def _aligned_blocks(state: Phase) -> tuple[int, int]:
    """Blocks of entity resolution so far, and in all."""
    match state:
        case Aligning(session=session) | WithRows(session=session) if session is not None:
            return session.progress
        case WithRows(align_total=total):
            return total, total
        case Running() | _:
            return 0, 0
