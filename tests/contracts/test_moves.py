"""Every row of every table of moves: handler, message and next phases fit each other.

mypy cannot see this, because a table holds handlers of many types. Each rule is shown to notice
what it forbids.
"""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar, Union, get_args, get_origin

import pytest

from broker import coordinator, registrar
from broker import phases as seen
from broker import run_phases as agreed
from broker.standing import Standing
from hdpvfl_mq.machine import (
    Charged,
    LedgerRead,
    Move,
    Moves,
    Offence,
    OperatorCommand,
    OperatorRequest,
    Received,
    Started,
    Step,
    TimerFired,
    stay,
)
from parties import active, belonging, membership, passive, phases, unable
from parties import run_phases as known
from schemas.commands import Command
from schemas.federation import FederationMessage
from schemas.messages import ROUTES, UNNUMBERED, Hello, Pause
from scripts.draw_machines import DRAWN, MACHINES, RUNS, UNABLE, Machine, next_phases, reachable
from tests.samples import KINDS

INPUTS = {
    "started": Started,
    "ledger": LedgerRead,
    "charged": Charged,
    "offence": Offence,
}
BY_PREFIX = {"timer": TimerFired, "operator": OperatorRequest, "command": OperatorCommand}
FEDERATION = {kind.model_fields["kind"].default for kind in get_args(FederationMessage)}
Problems = Iterator[str]


# -- what annotations say ----------------------------------------------------------------------


def variants(annotation: Any) -> Iterator[Any]:
    """The members of a union, of a type variable, or the annotation itself."""
    if isinstance(annotation, TypeVar):
        for each in annotation.__constraints__ or (annotation.__bound__,):
            yield from variants(each)
    elif get_origin(annotation) in (Union, types.UnionType):
        for each in get_args(annotation):
            yield from variants(each)
    else:
        yield annotation


def takes_phase(annotation: Any, phase: type) -> bool:
    return any(each is Any or issubclass(phase, each) for each in variants(annotation))


def takes_input(annotation: Any, name: str) -> bool:
    """Whether a handler's last parameter may be the input of this column."""
    wanted = INPUTS.get(name) or BY_PREFIX.get(name.split(":", maxsplit=1)[0]) or Received
    for each in variants(annotation):
        messages = get_args(each) if get_origin(each) is Received else ()
        kinds = {m.model_fields["kind"].default for m in messages if m is not Any}
        is_any = each is Any or messages == (Any,)
        if is_any or each is wanted or (wanted is Received and name in kinds):
            return True
    return False


def returned_phases(annotation: Any) -> set[Any]:
    """The states a handler says it returns; a type variable stands for the phase it was given."""
    steps = [each for each in variants(annotation) if get_origin(each) is tuple]
    states = {get_args(step)[0] for step in steps}
    return {v for s in states for v in ([s] if isinstance(s, TypeVar) else variants(s))}


@dataclass(frozen=True)
class Signature:
    """What a handler's annotations promise."""

    state: Any
    given: Any
    returned: Any

    @classmethod
    def of(cls, handler: Callable[..., Any]) -> Signature:
        function = handler.func if isinstance(handler, partial) else handler
        hints = typing.get_type_hints(function)
        _, state, given, *_ = inspect.signature(function).parameters
        return cls(hints[state], hints[given], hints["return"])


# -- the rules ----------------------------------------------------------------------------------


def misfits(machine: Machine) -> Problems:
    """Rows whose handler does not take the phase or the input, or returns other phases."""
    for (phase, name), move in machine.moves.items():
        row, said = f"{phase.__name__}, {name}", Signature.of(move.handler)
        if not takes_phase(said.state, phase):
            yield f"{row}: the handler does not take the phase"
        if not takes_input(said.given, name):
            yield f"{row}: the handler does not take the input"
        returned, to = returned_phases(said.returned), move.to or (phase,)
        for each in to:
            same = each is phase and any(isinstance(r, TypeVar) for r in returned)
            if not same and not any(r is Any or is_phase(each, r) for r in returned):
                yield f"{row}: the handler does not lead to {each.__name__}"
        for each in returned:
            is_named = isinstance(each, type) and each is not Any  # Any is a class
            if is_named and not any(is_phase(t, each) for t in to):
                yield f"{row}: the table lacks {each.__name__}"


def is_phase(each: Any, of: Any) -> bool:
    return isinstance(each, type) and isinstance(of, type) and issubclass(each, of)


def foreign(machine: Machine) -> Problems:
    """Rows about something that is no phase of this machine, or no input."""
    base = machine.starts[0].__mro__[-2]
    for (phase, name), move in machine.moves.items():
        for each in (phase, *move.to):
            if not is_phase(each, base):
                yield f"{each} is not a phase"
        known = name in {*KINDS, *INPUTS} or name.split(":")[0] in BY_PREFIX
        if not known:
            yield f"{name} is not an input"


def dead(machine: Machine) -> Problems:
    """Phases nothing leads to, phases that do not lead to the end, rows nothing can use."""
    live = reachable(machine)
    for phase in machine.phases:
        if phase not in live:
            yield f"nothing leads to {phase.__name__}"
        elif reachable(replace(machine, starts=(phase,))).isdisjoint(machine.ends):
            yield f"{phase.__name__} never ends"
    used = {row for phase in live for row in rows_of(machine.moves, phase)}
    for phase, name in set(machine.moves) - used:
        yield f"no phase uses {phase.__name__}, {name}"


def rows_of(moves: Moves, phase: type) -> Iterator[tuple[type, str]]:
    for name in {name for _, name in moves}:
        yield from [(base, name) for base in phase.__mro__ if (base, name) in moves][:1]


def deaf(machine: Machine) -> Problems:
    """Messages that may be sent to this role and that no phase of it takes."""
    taken = {name for _, name in machine.moves}
    for kind, (_, receivers) in ROUTES.items():
        is_here = (kind in FEDERATION) == (machine in STANDING)
        if is_here and machine.role in receivers and kind not in taken | UNNUMBERED:
            yield f"nobody takes {kind}"


RULES = (misfits, foreign, dead, deaf)
# A federation's roles have one phase each: there is nothing to draw.
_STANDING, _BELONGING = (Standing,), (belonging.Belonging,)
STANDING = (
    Machine("the registrar", "coordinator", "", registrar.MOVES, _STANDING, _STANDING),
    Machine("a member", "active", "", membership.MOVES, _BELONGING, _BELONGING),
    Machine("a member", "passive", "", membership.MOVES, _BELONGING, _BELONGING),
)


# `deaf` does not apply: an unable party refuses most messages, a run takes those about itself.
@pytest.mark.parametrize("machine", [UNABLE, *RUNS], ids=lambda machine: machine.name)
@pytest.mark.parametrize("rule", [misfits, foreign, dead])
def test_every_row_of_an_unable_party_and_of_a_run_in_a_federation_fits(rule, machine):
    assert list(rule(machine)) == []


@pytest.mark.parametrize(
    ("rule", "row", "move", "found"),
    [
        (misfits, (unable.Told, "started"), Move(unable.Unable.started, ()), "take the phase"),
        (foreign, (phases.Closed, "run_closed"), Move(stay, ()), "is not a phase"),
        (dead, (unable.Phase, "run_closed"), Move(stay, ()), "no phase uses Phase, run_closed"),
    ],
)
def test_a_wrong_row_of_a_party_that_cannot_take_part_is_noticed(rule, row, move, found):
    spoiled = replace(UNABLE, moves={**unable.MOVES, row: move})
    assert any(found in problem for problem in rule(spoiled))


@pytest.mark.parametrize("machine", STANDING, ids=lambda machine: machine.name)
@pytest.mark.parametrize("rule", [misfits, foreign, deaf])
def test_every_row_of_a_federation_fits(rule, machine):
    assert list(rule(machine)) == []


@pytest.mark.parametrize("machine", STANDING, ids=lambda machine: machine.name)
def test_every_command_has_a_role_that_takes_it(machine):
    taken = {name for each in (*STANDING, *MACHINES) for _, name in each.moves}
    commands = get_args(get_args(Command)[0])
    assert {f"command:{kind.model_fields['name'].default}" for kind in commands} <= taken


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.name)
@pytest.mark.parametrize("rule", RULES)
def test_every_row_fits(rule, machine):
    assert list(rule(machine)) == []


def test_the_tables_are_those_of_the_roles():
    tables = {machine.role: machine.moves for machine in MACHINES}
    assert tables["active"] is active.MOVES
    assert tables["passive"] is passive.MOVES
    assert tables["coordinator"] is coordinator.MOVES


def test_all_types_of_phases_are_drawn():
    """A new phase is in a table or is the base of others."""
    bases_of = ((phases, phases.Phase), (seen, seen.Phase), (unable, unable.Phase))
    bases_of += ((agreed, agreed.AgreedRun), (known, known.KnownRun))
    for module, base in bases_of:
        kinds = {c for c in vars(module).values() if is_phase(c, base)}
        bases = {base for kind in kinds for base in kind.__bases__}
        drawn = {p for machine in DRAWN for p in machine.phases}
        assert kinds - bases <= drawn


# -- each rule notices ----------------------------------------------------------------------------


def pause(own: Any, state: phases.Training, given: Received[Pause]) -> Step[phases.Training]:
    raise NotImplementedError


def hello(own: Any, state: phases.Phase, given: Received[Hello]) -> Step[phases.Phase]:
    raise NotImplementedError


@dataclass(frozen=True)
class Lost(phases.Running):
    """A phase without a way out."""


@pytest.mark.parametrize(
    ("rule", "row", "move", "found"),
    [
        (misfits, (phases.Closed, "pause"), Move(pause, ()), "does not take the phase"),
        (misfits, (phases.Training, "resume"), Move(pause, ()), "does not take the input"),
        (misfits, (phases.Training, "timer:watch"), Move(pause, ()), "does not take the input"),
        (misfits, (phases.Training, "pause"), Move(pause, (phases.Closed,)), "does not lead to"),
        (misfits, (phases.Training, "pause"), Move(pause, (phases.Closed,)), "the table lacks"),
        (foreign, (seen.Training, "pause"), Move(stay, ()), "is not a phase"),
        (foreign, (phases.Closed, "pause"), Move(stay, (str,)), "is not a phase"),
        (foreign, (phases.Closed, "gossip"), Move(stay, ()), "is not an input"),
        (dead, (phases.Joining, "run_offer"), Move(stay, ()), "nothing leads to Accepted"),
        (dead, (phases.Closed, "pause"), Move(stay, (Lost,)), "Lost never ends"),
        (dead, (phases.Phase, "pause"), Move(stay, ()), ""),
    ],
)
def test_each_rule_notices_what_it_forbids(rule, row, move, found):
    machine = next(m for m in MACHINES if m.role == "passive")
    spoiled = {**machine.moves, row: move}
    if row[0] is phases.Closed and move.to == (Lost,):  # it takes nothing but what keeps it
        spoiled |= {(Lost, name): Move(stay, ()) for name in {name for _, name in spoiled}}
    problems = list(rule(replace(machine, moves=spoiled)))
    assert any(found in problem for problem in problems) if found else problems == []


def test_a_message_without_a_row_is_noticed():
    machine = next(m for m in MACHINES if m.role == "coordinator")
    without = {row: move for row, move in machine.moves.items() if row[1] != "withdraw"}
    assert list(deaf(replace(machine, moves=without))) == ["nobody takes withdraw"]


def test_a_row_that_a_nearer_one_hides_is_noticed():
    machine = next(m for m in MACHINES if m.role == "passive")
    hidden = {**machine.moves, (phases.Phase, "run_closed"): Move(stay, ())}
    hidden |= {(phases.Starting, "run_closed"): Move(stay, ())}
    assert list(dead(replace(machine, moves=hidden))) == ["no phase uses Phase, run_closed"]


def test_moves_of_a_base_hold_for_all_its_phases():
    machine = next(m for m in MACHINES if m.role == "passive")
    assert next_phases(machine, phases.Aligned, "run_closed") == (phases.Closed,)
    assert next_phases(machine, phases.Aligned, "align_block") == (phases.Aligned,)
    assert next_phases(machine, phases.Starting, "run_closed") is None
