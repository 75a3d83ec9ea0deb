"""A scoring session in the active party's process: its desk, its open questions and its results.

It owns the conversion between questions (from an operator or for a whole file) and the role's
commands; it knows no socket. Ids in questions are looked up here: no id leaves this process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from hdpvfl_mq.arrays.distinct import distinct
from hdpvfl_mq.errors import OperatorError, SettingsError
from hdpvfl_mq.node.node import Event
from hdpvfl_mq.psi import normalise
from parties.assets import Assets
from parties.common_rows import people_at
from parties.phases import Phase, Setup, setup_of
from parties.process.score_results import ScoreResults, predicted
from parties.rounds.score_sums import Answer, Places, unpacked
from parties.score_desk import ScoreDesk
from schemas.config import PartySettings

ASKED_MAX = 5_000  # people in one question of an operator


class ScoreSession:
    """The desk of one session."""

    def __init__(self, settings: PartySettings, folder: Path, own: Assets) -> None:
        self._own, self._folder = own, folder
        self._out = Path(settings.scores_out or folder / "predictions.csv")
        self._results: ScoreResults | None = None
        self._setup: Setup | None = None
        self._places: dict[bytes, int] = {}
        self.desk = ScoreDesk(is_everybody=not settings.session, take=self._take)
        self.scored = 0

    def next(self, state: Phase) -> Event | None:
        """The next command for the role, if there is one."""
        self._setup = setup_of(state) or self._setup
        return self.desk.next(state)

    def write(self) -> None:
        """Write the file of scores, if the session scores a whole file."""
        if self.desk.is_everybody:
            self._stored().write(self._out)

    def _stored(self) -> ScoreResults:
        if self._results is None:
            self._results = ScoreResults(self._folder, self._own)
        return self._results

    def _take(self, answer: Answer) -> None:
        assert self._setup is not None
        self._stored().take(self._setup, answer)
        self.scored += len(answer.places)

    # -- questions of an operator -------------------------------------------------------------

    async def ask(self, asked: dict[str, Any], nudge: Callable[[], None]) -> dict[str, Any]:
        """The scores of some people, by place or by id."""
        if self._setup is None or self.desk.is_everybody:
            raise OperatorError("the session is not open yet, or it scores a whole file")
        names = [str(each) for each in asked.get("ids") or ()]
        places = self._found(names) if names else asked.get("places") or []
        if not 1 <= len(places) <= ASKED_MAX or not all(type(each) is int for each in places):
            raise OperatorError(f"ask for 1 to {ASKED_MAX} people, by id or by place")
        rows = self._setup.plan.rows
        if not 0 <= min(places) <= max(places) < rows:
            raise OperatorError(f"the session has places 0 to {rows - 1}")
        answer = await self._answered(distinct(np.array(places, dtype=np.int64)), nudge)
        return {"scores": self._shown(answer, places, names)}

    async def _answered(self, places: Places, nudge: Callable[[], None]) -> Answer:
        waiting: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

        def take(answer: Answer) -> None:
            if not waiting.done():
                waiting.set_result(answer)

        try:
            self.desk.put(places, take)
        except OverflowError as full:
            raise OperatorError(str(full)) from None
        nudge()
        return await waiting

    def _found(self, names: list[str]) -> list[int]:
        """The places of these ids among the people of the session."""
        assert self._setup is not None
        if not self._places:
            everybody = np.arange(self._setup.plan.rows)
            ids = people_at(self._own, self._setup, everybody)
            self._places = dict(zip(ids, everybody.tolist(), strict=True))
        if self._own.id_rules.columns != 1:
            raise OperatorError("ids of several columns: ask by place instead")
        column = np.array(names, dtype=object)
        try:
            wanted = normalise([column], self._own.id_rules).ids
        except SettingsError as wrong:
            raise OperatorError(str(wrong)) from None
        places = [self._places.get(each) for each in wanted]
        if len(places) != len(names) or None in places:
            raise OperatorError("not all of these ids are among the people of the session")
        return [place for place in places if place is not None]

    def _shown(self, answer: Answer, places: list[int], names: list[str]) -> list[dict[str, Any]]:
        count = len(answer.places)
        at = {place: number for number, place in enumerate(answer.places.tolist())}
        refused = unpacked(answer.refused, count)
        means = predicted(self._own, answer.theta)
        masks = {party: unpacked(bits, count) for party, bits in answer.without.items()}
        shown = []
        for order, place in enumerate(places):
            number = at[place]
            without = {p: answer.reasons[p] for p, mask in masks.items() if mask[number]}
            scored = not refused[number]
            shown.append(
                {
                    **({"id": names[order]} if names else {}),
                    "place": place,
                    "theta": float(answer.theta[number]) if scored else None,
                    "prediction": float(means[number]) if scored else None,
                    "without": without,
                }
            )
        return shown
