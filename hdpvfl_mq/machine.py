"""The contract of every role: inputs in, state and effects out, nothing else.

It owns Input, Effect, the table of legal moves and `fold`; it knows no bytes, clock, file, socket
or dice. A role cannot learn whether it runs live, recovers or is replayed: the three are the same
fold over the same inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from hdpvfl_mq.errors import PeerError
from schemas.ids import PartyId
from schemas.messages import Message
from schemas.privacy import LedgerHead
from schemas.records import LedgerStanding


@dataclass(frozen=True)
class Started:
    """The process started; epochs rise by one each time."""

    epoch: int
    standing: LedgerStanding


@dataclass(frozen=True)
class LedgerRead:
    """What the ledger says now that everything before is booked."""

    standing: LedgerStanding


@dataclass(frozen=True)
class Received:
    """A peer's message, verified, in order, once."""

    sender: PartyId
    message: Message


@dataclass(frozen=True)
class Fired:
    """A timer armed before has run out."""

    timer: str


@dataclass(frozen=True)
class Ordered:
    """The operator's word."""

    order: str


Input = Started | LedgerRead | Received | Fired | Ordered


@dataclass(frozen=True)
class Send:
    """One message to one or more parties, the same bytes to all."""

    to: tuple[PartyId, ...]
    message: Message


@dataclass(frozen=True)
class Arm:
    """Ask for `Fired(timer)` after a delay; arming again moves it."""

    timer: str
    delay_s: float


@dataclass(frozen=True)
class Reserve:
    """Reserve budget in the ledger before the first release; `exact` records a disclosure."""

    mu2_units: int
    tau_units: int
    exact: bool


@dataclass(frozen=True)
class ReadLedger:
    """Ask for `LedgerRead` once everything of this step is booked."""


@dataclass(frozen=True)
class RememberHead:
    """Keep the newest ledger head of a peer and its signature, beyond this run."""

    party: PartyId
    head: LedgerHead
    signature: bytes


@dataclass(frozen=True)
class CheckLedger:
    """Stop with IntegrityError if the own ledger is older than a head a peer co-signed."""

    party: PartyId
    head: LedgerHead
    signature: bytes


@dataclass(frozen=True)
class Finish:
    """This role has nothing more to do."""

    outcome: str


LedgerOrder = ReadLedger | RememberHead | CheckLedger
Effect = Send | Arm | Reserve | ReadLedger | RememberHead | CheckLedger | Finish
State = TypeVar("State")
Step = tuple[State, tuple[Effect, ...]]
Handler = Callable[[Any, Any, Any], Step[Any]]
Moves = Mapping[tuple[str, str], Handler]


class Role(Protocol):
    """A party or the coordinator: data and secrets are fixed at its making, `step` is pure."""

    name: PartyId

    def initial(self) -> Any:
        """The state before any input."""

    def step(self, state: Any, given: Input) -> Step[Any]:
        """One input; raises PeerError and changes nothing when the move is not legal."""

    def progress(self, state: Any) -> dict[str, Any]:
        """What the owner of this process may see of it; never sent."""

    def freeze(self, state: Any) -> bytes | None:
        """The state as bytes for a snapshot; None while it is not one that can be put away."""

    def thaw(self, frozen: bytes) -> Any | None:
        """The state that was frozen; None if this role has other data or settings than then."""


def move_name(given: Input) -> str:
    """The column of an input in the table of legal moves."""
    match given:
        case Received(message=message):
            return message.kind
        case Fired(timer=timer):
            return f"timer:{timer.split(':')[0]}"
        case Ordered(order=order):
            return f"order:{order}"
        case Started():
            return "started"
        case LedgerRead():
            return "ledger"


def dispatch(moves: Moves, role: Any, state: Any, given: Input) -> Step[Any]:
    """Look the move up in the role's table and make it; anything not in the table is refused."""
    name = move_name(given)
    handler = moves.get((state.phase, name)) or moves.get(("*", name))
    if handler is None:
        raise PeerError(f"{name} is not a legal move while {state.phase}")
    return handler(role, state, given)


def stay(role: Any, state: State, given: Input) -> Step[State]:
    """A legal move without effect, for what may arrive late."""
    return state, ()


def fold(role: Role, inputs: Iterable[Input]) -> Any:
    """The state after these inputs; refused ones change nothing."""
    state = role.initial()
    for given in inputs:
        try:
            state, _ = role.step(state, given)
        except PeerError:
            continue
    return state
