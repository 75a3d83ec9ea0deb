"""The contract of every role: inputs in, state and effects out, nothing else.

It owns Input, Effect, the table of legal moves and `fold`; it knows no bytes, clock, file, socket
or dice. A role cannot learn whether it runs live, recovers or is replayed: the three are the same
fold over the same inputs. Inputs and effects are the recorded ones (schemas/records.py); only an
envelope has a decoded form here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Literal, Protocol, TypeVar

from hdpvfl_mq.errors import PeerError
from schemas.commands import OperatorCommand
from schemas.federation import Forget, Meet, SignWith
from schemas.ids import COORDINATOR, PartyId
from schemas.messages import Message
from schemas.records import (
    Arm,
    Book,
    Charge,
    Charged,
    CheckLedger,
    Finish,
    LedgerRead,
    OperatorRequest,
    ReadLedger,
    Refused,
    RememberHead,
    Reserve,
    Started,
    TimerFired,
)

__all__ = [
    "OFFENCE_S",
    "Arm",
    "Book",
    "Charge",
    "Charged",
    "CheckLedger",
    "Effect",
    "Finish",
    "Forget",
    "Input",
    "LedgerOrder",
    "LedgerRead",
    "Meet",
    "Move",
    "Moves",
    "NoReleases",
    "Offence",
    "OffenceCause",
    "OperatorCommand",
    "OperatorRequest",
    "ReadLedger",
    "Received",
    "Refused",
    "RememberHead",
    "Reserve",
    "Role",
    "Send",
    "SignWith",
    "Started",
    "Step",
    "TimerFired",
    "arm",
    "dispatch",
    "find_move",
    "fold",
    "move_name",
    "stay",
]
MessageT = TypeVar("MessageT", bound=Message)
# offence: the peer signed what is not allowed; missing: the peer or the broker withholds something.
OffenceCause = Literal["offence", "missing"]
OFFENCE_S = 5.0  # how long a run may make no progress after a peer's message was refused


@dataclass(frozen=True)
class Received(Generic[MessageT]):
    """A peer's message, verified, delivered once and in order."""

    sender: PartyId
    message: MessageT


@dataclass(frozen=True)
class Offence:
    """A peer's message was refused, or is missing, and the run cannot continue without it.

    It follows from the record of the refusal and has no record of its own.
    """

    sender: PartyId
    cause: OffenceCause = "offence"


@dataclass(frozen=True)
class Send:
    """One message to one or more parties, the same bytes to all."""

    to: tuple[PartyId, ...]
    message: Message


Input = (
    Started
    | LedgerRead
    | Charged
    | Received[Any]
    | Offence
    | TimerFired
    | OperatorRequest
    | OperatorCommand
)
LedgerOrder = ReadLedger | RememberHead | CheckLedger
Effect = (
    Send
    | Arm
    | Reserve
    | Book
    | Charge
    | ReadLedger
    | RememberHead
    | CheckLedger
    | Meet
    | Forget
    | SignWith
    | Finish
    | Refused
)
StateT = TypeVar("StateT")
CommandT = TypeVar("CommandT")
Step = tuple[StateT, tuple[Effect, ...]]


@dataclass(frozen=True)
class Move:
    """What an input does in one phase: its handler, and the phases the role may be in after it."""

    handler: Callable[[Any, Any, Any], Step[Any]]
    to: tuple[type, ...]


# (phase, name of the input) -> move. A phase is a class; a base class's move holds for subclasses.
Moves = Mapping[tuple[type, str], Move]


class Role(Protocol):
    """A party or the coordinator: data and secrets are fixed at creation, `step` is pure."""

    name: PartyId

    def initial(self) -> Any:
        """The state before any input."""

    def step(self, state: Any, given: Input) -> Step[Any]:
        """Take one input; raises PeerError and changes nothing if the move is not legal."""

    def progress(self, state: Any) -> dict[str, Any]:
        """Progress for the owner of this process; never sent."""

    def awaits(self, state: Any) -> tuple[PartyId, ...]:
        """The peers whose next message this role itself needs, besides the coordinator's."""

    def release_bytes_max(self, state: Any) -> int | None:
        """Bytes that a peer's release may have; None while that is not known yet."""

    def is_early(self, state: Any, kind: str) -> bool:
        """Whether a message of this kind must wait: another peer's message has to come first."""

    def freeze(self, state: Any) -> bytes | None:
        """The state as bytes for a snapshot; None in a phase without snapshots."""

    def thaw(self, frozen: bytes) -> Any | None:
        """The frozen state; None if this role's data or settings have changed since."""


def awaited(role: Role, state: Any) -> tuple[PartyId, ...]:
    """The peers whose next message a role may need, with the coordinator.

    Whom the coordinator waits for does not count: all parties of a crowd would ask all others.
    """
    return (COORDINATOR, *role.awaits(state))


class NoReleases:
    """A role that receives no release, and nothing of other parties unless it says so."""

    def awaits(self, state: Any) -> tuple[PartyId, ...]:
        """Nobody: what this role needs comes from the coordinator."""
        return ()

    def release_bytes_max(self, state: Any) -> int | None:
        """No byte in any phase."""
        return 0

    def is_early(self, state: Any, kind: str) -> bool:
        """No message waits for another peer's."""
        return False


class NoSnapshot(NoReleases):
    """A role without snapshots, because its journal is folded quickly."""

    def freeze(self, state: Any) -> bytes | None:
        """None in every phase."""
        return None

    def thaw(self, frozen: bytes) -> Any | None:
        """See `freeze`."""
        return None


def command_of(given: OperatorCommand, kind: type[CommandT]) -> CommandT:
    """The operator's command, as the kind that a move handles."""
    assert isinstance(given.command, kind)
    return given.command


def arm(timer: str, delay_s: float) -> Arm:
    """Set a timer that fires after `delay_s` seconds."""
    return Arm(timer=timer, delay_ms=round(delay_s * 1000))


_NAMES: dict[type, str] = {
    Started: "started",
    LedgerRead: "ledger",
    Charged: "charged",
    Offence: "offence",
}


def move_name(given: Input) -> str:
    """The column of an input in the table of legal moves."""
    match given:
        case Received(message=message):
            return str(message.kind)
        case TimerFired(timer=timer):
            return f"timer:{timer.split(':')[0]}"
        case OperatorRequest(request=request):
            return f"operator:{request}"
        case OperatorCommand(command=command):
            return f"command:{command.name}"
        case Started() | LedgerRead() | Charged() | Offence():
            return _NAMES[type(given)]


def find_move(moves: Moves, phase: type, name: str) -> Move | None:
    """The move of the phase itself, or of the nearest base class that has one."""
    found = (moves.get((base, name)) for base in phase.__mro__)
    return next((move for move in found if move is not None), None)


def dispatch(moves: Moves, role: Any, state: Any, given: Input) -> Step[Any]:
    """Look the move up in the role's table and make it; anything not in the table is refused."""
    name, phase = move_name(given), type(state)
    move = find_move(moves, phase, name)
    if move is None:
        raise PeerError(f"{name} is not a legal move while {phase.__name__.lower()}")
    after, effects = move.handler(role, state, given)
    if type(after) not in (move.to or (phase,)):
        raise AssertionError(f"{name} led from {phase.__name__} to {type(after).__name__}")
    return after, effects


def stay(role: Any, state: Any, given: Input) -> Step[Any]:
    """A legal move without effect, for inputs that may arrive late."""
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
