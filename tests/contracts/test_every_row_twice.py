"""Every row of a run's tables is made twice: active party, passive party and coordinator.

Whole runs are simulated with every step made twice. They meet all phases, but not all rows: nobody
is late, nothing is refused. Steps are pure, so a run's states and inputs can be paired at will
after it: what the run left out is tried with the states of its phase and the inputs of its name,
until a pair is legal and has an effect. A row that no pair makes fails the contract.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

import pytest

from broker import coordinator
from broker.coordinator import Coordinator
from hdpvfl_mq.errors import PeerError
from hdpvfl_mq.machine import (
    Arm,
    Input,
    Moves,
    Offence,
    OperatorRequest,
    Received,
    Started,
    Step,
    TimerFired,
    find_move,
    move_name,
    stay,
)
from hdpvfl_mq.node.node import NO_LEDGER
from hdpvfl_mq.psi import Terms as SessionTerms
from parties import active, alignment, passive
from parties.phases import Training, WithRows
from schemas.ids import COORDINATOR
from schemas.messages import Pause, Resume, RunClosed, RunRefuse, Waiting, Withdraw
from schemas.privacy import Budget
from tests.deep import deep_digest
from tests.federation import Federation, manifest, tables
from tests.simulation import scoring
from tests.twice import Twice

pytestmark = pytest.mark.seconds
TABLES: dict[str, Moves] = {
    "active": active.MOVES,
    "passive": passive.MOVES,
    "coordinator": coordinator.MOVES,
}
# A passive party takes the common ids only after its last block, so its session is over by then.
UNREACHABLE = {("passive", WithRows, "align_block")}
Row = tuple[str, type, str]


@dataclass
class Met:
    """What one role has met: its states, and its inputs by the tables' names for them."""

    role: Any
    table: str
    states: list[Any]
    inputs: dict[str, list[Input]] = field(default_factory=dict)

    def put(self, given: Input) -> None:
        known = self.inputs.setdefault(move_name(given), [])
        if not any(each is given or each == given for each in known):
            known.append(given)


@dataclass
class Explorer(Twice):
    """Notes the rows of runs, then makes those that the runs left out."""

    rows: set[Row] = field(default_factory=set)
    places: set[tuple[type, str, str]] = field(default_factory=set)
    met: dict[str, Met] = field(default_factory=dict)
    is_exploring: bool = False

    def role(self, role: Any) -> Any:
        table = "coordinator" if isinstance(role, Coordinator) else role.own.role
        self.met[role.name] = Met(super().role(role), table, [role.initial()])
        return role

    def made(self, role: Any, state: Any, given: Input, after: Step[Any]) -> None:
        """Keep the state after a step, and what may follow from the timers that it sets."""
        met = self.met[role.name]
        row, place = _row(met.table, state, given), _place(met.table, state, given)
        moved = bool(after[1]) or deep_digest(after[0]) != deep_digest(state)
        if not moved and TABLES[met.table][row[1:]].handler is not stay:
            return  # legal, but it shows little of its handler
        if not self.is_exploring or row not in self.rows or place not in self.places:
            met.put(given)
            met.states += [after[0]] if moved else []
            for each in after[1]:
                if isinstance(each, Arm):
                    met.put(TimerFired(timer=each.timer))
        self.rows.add(row)
        self.places.add(place)

    def explore(self) -> None:
        """Pair states and inputs until no pair makes anything else."""
        self.is_exploring = True
        for met in self.met.values():
            for given in _at_any_moment(met.role):
                met.put(given)
        known = -1
        while known < len(self.places):
            known = len(self.places)
            for met in self.met.values():
                for state, given in tuple(_pairs(met)):
                    self._try(met, state, given)
        self.is_exploring = False

    def _try(self, met: Met, state: Any, given: Input) -> None:
        if self._is_new(met, state, given):
            with suppress(PeerError):
                met.role.step(state, given)

    def _is_new(self, met: Met, state: Any, given: Input) -> bool:
        """A row, or an offence in another phase: the timer that it sets belongs to the phase."""
        if isinstance(given, Offence) and _place(met.table, state, given) not in self.places:
            return True
        return _row(met.table, state, given) not in self.rows | UNREACHABLE


def _row(table: str, state: Any, given: Input) -> Row:
    name, moves = move_name(given), TABLES[table]
    return next((table, base, name) for base in type(state).__mro__ if (base, name) in moves)


def _place(table: str, state: Any, given: Input) -> tuple[type, str, str]:
    """A row in one phase itself; each cause of an offence sets another timer."""
    cause = f":{given.cause}" if isinstance(given, Offence) else ""
    return type(state), table, move_name(given) + cause


def _pairs(met: Met) -> Iterator[tuple[Any, Input]]:
    for state in met.states:
        for name, inputs in met.inputs.items():
            if find_move(TABLES[met.table], type(state), name) is not None:
                yield from ((state, given) for given in inputs)


def _at_any_moment(role: Any) -> Iterator[Input]:
    """What parties, their operators and the coordinator may say besides what the runs need."""
    peer = "telco" if role.name == "bank" else "bank"
    yield Started(epoch=2, standing=NO_LEDGER)
    yield OperatorRequest(request="withdraw")
    yield OperatorRequest(request="close")
    yield Offence(peer, "offence")
    yield Offence(peer, "missing")
    yield Received(peer, Withdraw(reason="operator"))
    yield Received(peer, RunRefuse(rule="rows"))
    yield Received(peer, Waiting(waiting_for=()))
    yield Received(COORDINATOR, Pause(waiting_for=(peer,)))
    yield Received(COORDINATOR, Resume(round=0, absent=()))
    yield Received(COORDINATOR, RunClosed(outcome="withdrawn", reason=""))


@cache
def made_rows() -> frozenset[Row]:
    """All rows that a training, a scoring session and their explorations make twice."""
    twice = Explorer()
    _train(twice)
    for met in twice.met.values():
        _leave_out(met)
    twice.explore()
    twice.met.clear()
    _score(twice)
    twice.explore()
    return frozenset(twice.rows)


def _train(twice: Explorer) -> None:
    """A training of several plans, with several blocks of ids in flight after they are known."""
    settings = {"epochs": 4, "rounds_ahead": 4, "absence": "nothing"}
    with pytest.MonkeyPatch.context() as small:
        small.setattr("hdpvfl_mq.psi.terms.MIN_BLOCK_BYTES", 256)
        few = partial(SessionTerms, block_bytes=256, window=1)
        small.setattr(alignment, "SessionTerms", few)
        federation = twice.federation(Federation(manifest(**settings), tables(44)))
        federation.simulate()
    assert set(federation.outcomes.values()) == {"completed"}


def _leave_out(met: Met) -> None:
    """The others complete the run without this party, which has no time to catch up."""
    state = next((each for each in met.states if isinstance(each, Training)), None)
    if state is None:
        return  # the coordinator's role
    orders: tuple[Input, ...] = (
        Received(COORDINATOR, Resume(round=state.round, absent=(met.role.name,))),
        Received(COORDINATOR, RunClosed(outcome="completed", reason="")),
        TimerFired(timer="closing"),
    )
    for given in orders:
        state, _ = met.role.step(state, given)


def _score(twice: Explorer) -> None:
    """With noise, so that people are charged."""
    _, models = scoring.trained()
    budget = Budget(epsilon=1.0, delta=1e-5)
    session = scoring.session(models, rows=44, scores="noised", budget=budget)
    session.batch = 40
    twice.federation(session.federation)
    session.run()
    assert session.answers


@pytest.mark.parametrize("table", TABLES)
def test_every_row_is_made_twice(table: str) -> None:
    rows = {(table, *row) for row in TABLES[table]}
    assert rows - made_rows() == {row for row in UNREACHABLE if row[0] == table}
