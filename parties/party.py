"""A party as a role: its assets and the table of moves of its side.

It owns only the dispatch from inputs to the tables; the moves are in member.py, alignment.py,
witness.py, active.py, passive.py and parties/rounds.
"""

from __future__ import annotations

from typing import Any

from hdpvfl_mq.machine import Input, Moves, Step, dispatch
from hdpvfl_mq.privacy.mechanism import SEAL_WORDS
from parties import active, passive, snapshot
from parties.assets import Assets
from parties.awaited import awaited
from parties.phases import (
    ActiveRounds,
    Aligned,
    Aligning,
    Over,
    Phase,
    Running,
    Starting,
    Training,
    WithRows,
    setup_of,
)
from schemas.ids import PartyId

WORD_BYTES = 8  # the largest number of a release


class Party:
    """The role of one party."""

    def __init__(self, own: Assets) -> None:
        self.own = own
        self.name = own.party
        self.moves: Moves = active.MOVES if own.role == "active" else passive.MOVES

    def initial(self) -> Phase:
        """The phase before the first process has started."""
        return Starting()

    def step(self, state: Phase, given: Input) -> Step[Any]:
        """Apply one move of the table for this side."""
        return dispatch(self.moves, self.own, state, given)

    def progress(self, state: Phase) -> dict[str, Any]:
        """What this party's operator may see, including the active party's own loss."""
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
            "waiting_for": self._waiting_for(state),
            "outcome": state.outcome if isinstance(state, Over) else "",
            "reason": state.reason,
        }
        if self.own.role == "active":
            losses = rounds.own_losses if isinstance(rounds, ActiveRounds) else ()
            shown["loss"] = losses[-1] if losses else None
        return shown

    def _waiting_for(self, state: Phase) -> list[PartyId]:
        """Whom the run waits for, as far as known; this party itself only if it is the only one."""
        told = list(state.waiting_for)
        others = [party for party in told if party != self.name]
        return others or list(awaited(self.own, state)) or told

    def awaits(self, state: Phase) -> tuple[PartyId, ...]:
        """The parties whose next message this one needs now."""
        return awaited(self.own, state)

    def release_bytes_max(self, state: Phase) -> int | None:
        """Eight bytes for each common row and the tag of a sealed release; None before the plan."""
        setup = setup_of(state)
        if setup is None:
            return 0 if isinstance(state, Over) else None
        return WORD_BYTES * (setup.plan.rows + SEAL_WORDS)

    def is_early(self, state: Phase, kind: str) -> bool:
        """A residual of a round for which the coordinator's orders are still on their way.

        Where rounds may run without a party, the active party may be rounds ahead of the orders
        that this party has heard, above all when both are sent again after an absence. A residual
        that was refused would be lost, and this party could not catch up.
        """
        if kind != "residual" or self.own.role == "active" or not isinstance(state, WithRows):
            return False
        if state.manifest.absence == "wait":
            return False  # no round runs without this party's share: the residual is an offence
        if isinstance(state, Aligned):
            return state.manifest.active_party in state.early
        return (
            isinstance(state, Training)
            and not state.is_done
            and state.round >= state.planned
            and not state.is_away(self.own.party)
        )

    def freeze(self, state: Phase) -> bytes | None:
        """The state as bytes; None outside training."""
        return snapshot.freeze(self.own, state)

    def thaw(self, frozen: bytes) -> Phase | None:
        """The state from its bytes, with the same rows, secret and alignment."""
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
