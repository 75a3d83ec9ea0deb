"""Make every step of a role twice and demand the same result and unchanged arguments; tests only.

What a party remembers outside its state (its workspace and its memo) is there in the first step and
empty in the second, so it can only be a memo.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np

from hdpvfl_mq.app.demo.rehearsal import Rehearsal
from hdpvfl_mq.arrays.chunked import Allocate
from hdpvfl_mq.errors import PeerError
from hdpvfl_mq.machine import Input, Step, move_name
from hdpvfl_mq.node.node import Node
from parties.party import Party
from parties.process.steps_on_disk import role_of
from tests.deep import arrays_in, deep_digest

FederationT = TypeVar("FederationT", bound=Rehearsal)


@dataclass
class Twice:
    """Makes every step of the roles it watches twice, and notes which moves it has seen."""

    phases: set[str] = field(default_factory=set)
    moves: set[str] = field(default_factory=set)
    taken: set[tuple[type, str]] = field(default_factory=set)  # moves that were not refused

    def federation(self, made: FederationT, allocate: Allocate = np.empty) -> FederationT:
        """Watch every role of a simulated run, those of restarted processes among them."""
        start = made.node

        def node(party: str) -> Node:
            started = start(party)
            if isinstance(started.role, Party):
                started.role = role_of(replace(started.role.own, allocate=allocate))
            self.role(started.role)
            return started

        made.node = node  # type: ignore[method-assign]  # this one federation only
        return made

    def role(self, role: Any) -> Any:
        """Watch one role."""
        step = role.step

        def twice(state: Any, given: Input) -> Step[Any]:
            before = deep_digest((state, given))
            first, second = outcomes(role, step, state, given)
            assert deep_digest((state, given)) == before, f"{given!r} or its state has changed"
            assert deep_digest(first) == deep_digest(second), f"{given!r} is not repeatable"
            self.phases.add(type(state).__name__)
            self.moves.add(move_name(given))
            after, effects = step(state, given) if isinstance(first, str) else first
            self.made(role, state, given, (after, effects))
            mapped = [each for each in arrays_in(after) if _is_mapped(each)]
            assert not mapped, "a state holds files"
            return after, effects

        role.step = twice
        return role

    def made(self, role: Any, state: Any, given: Input, after: Step[Any]) -> None:
        """Note a step that was not refused."""
        self.taken.add((type(role), move_name(given)))


def outcomes(role: Any, step: Any, state: Any, given: Input) -> tuple[Any, Any]:
    """The same step twice: as the process is, and with a party that remembers nothing.

    What the process remembers is put back, or the first step of the next input would also start
    without it, and could not differ.
    """
    first = _outcome(step, state, given)
    if not isinstance(role, Party):
        return first, _outcome(step, state, given)
    own, role.own = role.own, replace(role.own)  # a copy has a new workspace and a new memo
    try:
        return first, _outcome(step, state, given)
    finally:
        role.own = own


def _outcome(step: Any, state: Any, given: Input) -> Any:
    try:
        after, effects = step(state, given)
    except PeerError as refused:
        return str(refused)
    return after, effects


def _is_mapped(array: Any) -> bool:
    while array is not None and not isinstance(array, np.memmap):
        array = getattr(array, "base", None)
    return array is not None
