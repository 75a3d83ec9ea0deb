"""What operators and their policies ask of the roles: one class per command, one tagged union.

It owns these shapes and their limits; it knows no behaviour. A command comes from inside a process
and is recorded; it never crosses the network.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from schemas.base import Count, Digest, Extended, Strict, Text
from schemas.config import Path, RunManifest
from schemas.ids import MAX_PASSIVES, PartyId, PartyRole, RunId
from schemas.key_change import KeyChange
from schemas.tensor import Tensor

Secret = Annotated[bytes, Field(min_length=16, max_length=16)]


class SeatMember(Strict):
    """A member whose keys the settings state: exchanged by hand and trusted."""

    name: Literal["seat"] = "seat"
    party: PartyId
    role: PartyRole
    verify_key: Digest
    curve_key: Digest


class ProposeRun(Strict):
    """Propose a run; `rows` is this party's file of rows to score and `out` where the scores go; a
    `session` stays open for queries about single people.
    """

    name: Literal["propose"] = "propose"
    manifest: RunManifest
    rows: Path | None = None
    out: Path | None = None
    session: bool = False


class AnswerRun(Strict):
    """The answer of the operator or the policy to a proposal."""

    name: Literal["answer"] = "answer"
    run: RunId
    accepted: bool
    reason: Text


class StopRun(Strict):
    """Stop a run, whatever phase it is in."""

    name: Literal["stop"] = "stop"
    run: RunId
    reason: Literal["operator", "settings"]


class EndRun(Extended):
    """The run's node has ended in this process.

    `unheard` are parties that have not acknowledged the end: what they signed is false, or they
    leave too many ends without an answer.
    """

    later: ClassVar[tuple[str, ...]] = ("unheard",)
    name: Literal["end"] = "end"
    run: RunId
    outcome: Annotated[str, Field(max_length=64)]
    reason: Text
    unheard: Annotated[tuple[PartyId, ...], Field(max_length=MAX_PASSIVES + 1)] = ()


class CloseRun(Strict):
    """The run's coordinator has closed it; some parties have not acknowledged that yet."""

    name: Literal["close"] = "close"
    run: RunId
    outcome: Annotated[str, Field(max_length=64)]
    reason: Text


class CannotOpen(Strict):
    """The broker cannot open a run that its parties have agreed on."""

    name: Literal["cannot_open"] = "cannot_open"
    run: RunId
    reason: Text


class Invite(Strict):
    """Let one new member knock, once, until the invitation expires."""

    name: Literal["invite"] = "invite"
    party: PartyId
    role: PartyRole
    secret_digest: Digest
    expires_s: Count


class Admit(Strict):
    """A guest has knocked at this time, with this secret and these keys."""

    name: Literal["admit"] = "admit"
    party: PartyId
    secret: Secret
    verify_key: Digest
    curve_key: Digest
    at_s: Count


class ConfirmMember(Strict):
    """Two people have compared the words: pin the keys."""

    name: Literal["confirm"] = "confirm"
    party: PartyId


class RemoveMember(Strict):
    """Forget a member and its keys."""

    name: Literal["remove"] = "remove"
    party: PartyId


class ReplaceKeys(Strict):
    """Sign with this party's new keys from now on, and tell the others."""

    name: Literal["replace_keys"] = "replace_keys"
    change: KeyChange


class AskScores(Strict):
    """Ask the partners of a scoring session for the people at these places."""

    name: Literal["ask_scores"] = "ask_scores"
    places: Tensor


class EndScoring(Strict):
    """End a scoring session once the open query is answered."""

    name: Literal["end_scoring"] = "end_scoring"


Command = Annotated[
    SeatMember
    | ProposeRun
    | AnswerRun
    | StopRun
    | EndRun
    | CloseRun
    | CannotOpen
    | Invite
    | Admit
    | ConfirmMember
    | RemoveMember
    | ReplaceKeys
    | AskScores
    | EndScoring,
    Field(discriminator="name"),
]


class OperatorCommand(Strict):
    """An input from inside this process: from a person, a policy or one of its runs."""

    kind: Literal["command"] = "command"
    command: Command
