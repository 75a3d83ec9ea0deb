"""The exception tree. It owns who must react; it knows nothing of what went wrong.

HdpvflError
├── PeerError         a peer sent something wrong: drop it, note it, go on
│   └── CheatingError     a peer's proof is wrong: end what it was part of
│       └── TermsError        a peer holds other terms: the same
├── OperatorError     the operator must act: stop, the text names the remedy       exit 2
│   ├── SettingsError     a setting is wrong                                        exit 2
│   ├── DataError         the party's own data cannot be used as they are           exit 2
│   ├── RefusedError      a policy or a privacy budget says no                      exit 3
│   └── NetworkError      a peer or the network cannot be reached                   exit 4
└── IntegrityError    stored evidence contradicts itself: stop, keep the evidence   exit 5

No exception text ever carries a data value: row numbers, column names and counts only.
"""

from __future__ import annotations

from typing import ClassVar


class HdpvflError(Exception):
    """Root of everything this project raises on purpose."""

    exit_code: ClassVar[int] = 1


class PeerError(HdpvflError):
    """A peer broke the protocol; its message is refused, the state is untouched."""

    exit_code = 4


class CheatingError(PeerError):
    """A peer's proof is wrong: its exchange ends, because a second try is a second guess."""


class WithheldError(PeerError):
    """Envelopes of a peer are missing, or it acknowledges none: it or the broker withholds them."""


class TermsError(CheatingError):
    """A peer holds other terms of the same exchange: the peer or the sender of the terms lies."""


class MembersError(TermsError):
    """A peer knows other members of the run, or other keys of them."""


class OperatorError(HdpvflError):
    """The operator of this process must act before it can continue."""

    exit_code = 2


class SettingsError(OperatorError):
    """A setting is missing, unknown or out of range."""


class DataError(OperatorError):
    """The party's own data cannot be used; names column and row number, never a value."""


class RefusedError(OperatorError):
    """This party's policy or privacy budget refuses."""

    exit_code = 3


class NetworkError(OperatorError):
    """A peer or the network is out of reach."""

    exit_code = 4


class IntegrityError(HdpvflError):
    """Evidence on disk contradicts itself; nothing is sent after this."""

    exit_code = 5


# How a run ended -> the exit code of a process that serves only this run.
EXIT_BY_OUTCOME = {
    "completed": 0,
    "refused": 3,
    "withdrawn": 3,
    "deadline": 4,
    "mismatch": 2,
    "incomplete": 4,
}
_BY_EXIT: dict[int, type[HdpvflError]] = {
    2: OperatorError,
    3: RefusedError,
    4: NetworkError,
    5: IntegrityError,
}


def error_of(exit_code: int, text: str) -> HdpvflError:
    """The error with which another process of this project ended or answered, to raise here."""
    return _BY_EXIT.get(exit_code, OperatorError)(text)


def of_the_system(stop: OSError) -> str:
    """The message to the operator if the operating system refuses: file, cause and remedy."""
    named = f" {stop.filename}" if stop.filename else ""
    return (
        f"reading or writing{named} failed ({stop.strerror or type(stop).__name__}); free disk "
        "space or repair the folder, then start again: nothing was sent after the last commit"
    )
