"""The active party's desk in a scoring session: the queue of questions and their answers.

It owns the order of questions and the delivery of answers; it knows no file, socket or clock. The
role decides what a query is; the desk reads its state after every turn and gives it the next
command. Questions that wait while a query is open are asked together.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from hdpvfl_mq.arrays.distinct import union
from parties.phases import Over, Phase, training_of
from parties.rounds.score_sums import Answer, Places
from parties.rounds.scoring import ScoringActive
from schemas.commands import AskScores, EndScoring, OperatorCommand
from schemas.scoring import MAX_QUERY_PLACES
from schemas.tensor import Tensor

Take = Callable[[Answer], None]
WAITING_MAX = 10_000  # questions that may wait; more are refused


@dataclass
class Question:
    """Places that somebody asks for, and the function that takes their answer."""

    places: Places
    take: Take


@dataclass
class ScoreDesk:
    """Asks for everybody in batches, for single questions, or both; ends on request."""

    batch: int = MAX_QUERY_PLACES // 4
    is_everybody: bool = False  # ask for the whole session, then end it
    take: Take | None = None  # takes the answers for everybody
    _waiting: list[Question] = field(default_factory=list)
    _open: list[Question] = field(default_factory=list)
    _taken: int = -1  # number of the last answer delivered
    _asked: int = -1  # the role's next number at the last command
    is_ending: bool = False

    def put(self, places: Places, take: Take) -> None:
        """Ask for these places, in ascending order, with the next query."""
        if self.is_ending or len(self._waiting) >= WAITING_MAX:
            raise OverflowError("too many questions wait, or the session is at its end")
        self._waiting.append(Question(places, take))

    def next(self, state: Phase) -> OperatorCommand | None:
        """Deliver the last answer; return the next command if the role is ready for one."""
        training = None if isinstance(state, Over) else training_of(state)
        rounds = None if training is None else training.rounds
        if training is None or not isinstance(rounds, ScoringActive):
            return None
        if rounds.last is not None and rounds.last.number > self._taken:
            self._hand_over(rounds.last)
        if rounds.is_open or rounds.is_ending or training.is_done or rounds.next == self._asked:
            return None
        command = self._command(rounds.next, training.setup.plan.rows)
        self._asked = rounds.next if command is not None else -1
        return command

    def _command(self, number: int, rows: int) -> OperatorCommand | None:
        if self.is_everybody and number * self.batch < rows:
            places = np.arange(number * self.batch, min(rows, (number + 1) * self.batch))
            return OperatorCommand(command=AskScores(places=Tensor.smallest(places)))
        if self._waiting:
            return OperatorCommand(command=AskScores(places=Tensor.smallest(self._together())))
        if self.is_ending or self.is_everybody:
            return OperatorCommand(command=EndScoring())
        return None

    def _together(self) -> Places:
        """The places of as many waiting questions as fit into one query."""
        places = np.zeros(0, dtype=np.int64)
        while self._waiting:
            first = self._waiting[0].places
            more = union(places, first) if len(places) else first
            if len(more) > MAX_QUERY_PLACES:
                break
            places = more
            self._open.append(self._waiting.pop(0))
        return places

    def _hand_over(self, answer: Answer) -> None:
        self._taken = answer.number
        if self.is_everybody and self.take is not None:
            self.take(answer)
        waited, self._open = self._open, []
        for question in waited:
            question.take(answer)
