"""The vocabulary of a federation: what members and the registrar say, and what operators ask for.

It owns these shapes and their limits; it knows no behaviour. A federation has a stream of its own
beside its runs: its name stands where a run's name stands in the header.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from schemas.base import Closed, Count, Digest, Text
from schemas.config import Path, RunManifest
from schemas.ids import MAX_PASSIVES, Epoch, Parties, PartyId, PartyRole, RunId

Secret = Annotated[bytes, Field(min_length=16, max_length=16)]
RunPhase = Literal["proposed", "open", "refused", "over"]


class MemberHello(Closed):
    """A member's service has started (again); binds its connection to its name."""

    kind: Literal["member_hello"] = "member_hello"
    epoch: Epoch


class RunProposal(Closed):
    """The active party asks for a run; the registrar passes it on to the other parties."""

    kind: Literal["run_proposal"] = "run_proposal"
    manifest: RunManifest


class RunAnswer(Closed):
    """A party takes part in a proposed run, or says why it does not."""

    kind: Literal["run_answer"] = "run_answer"
    run: RunId
    accepted: bool
    reason: Text


class RunStop(Closed):
    """A party ends a run that is proposed, or that it cannot take part in after all."""

    kind: Literal["run_stop"] = "run_stop"
    run: RunId
    reason: Literal["operator", "settings"]


class RunNews(Closed):
    """Where a run stands before and after its own stream; says who is waited for."""

    kind: Literal["run_news"] = "run_news"
    run: RunId
    phase: RunPhase
    waiting_for: Parties
    reason: Text


class RosterEntry(Closed):
    """A member's name and role; its keys come from itself, by `pair`."""

    party: PartyId
    role: PartyRole


class Roster(Closed):
    """Who belongs to the federation now, as the registrar says."""

    kind: Literal["roster"] = "roster"
    members: Annotated[tuple[RosterEntry, ...], Field(max_length=MAX_PASSIVES + 1)]


class Pair(Closed):
    """One of three messages by which two members learn each other's keys.

    The registrar passes it on and puts the sender's name in the place of the receiver's. 1: the
    hash of a number and of the keys. 2: the other's number. 3: the number that was hashed. Who
    passes them on cannot choose keys that lead both sides to the same words.
    """

    kind: Literal["pair"] = "pair"
    peer: PartyId
    stage: Annotated[int, Field(ge=1, le=3)]
    value: Digest
    verify_key: Digest
    curve_key: Digest


FederationMessage = MemberHello | RunProposal | RunAnswer | RunStop | RunNews | Roster | Pair


# -- what operators and their policies ask of the roles -----------------------------------------


class SeatMember(Closed):
    """A member whose keys the settings state: exchanged by hand, trusted as they stand."""

    name: Literal["seat"] = "seat"
    party: PartyId
    role: PartyRole
    verify_key: Digest
    curve_key: Digest


class ProposeRun(Closed):
    """Ask the others for a run; `rows` is this party's own file of rows to score."""

    name: Literal["propose"] = "propose"
    manifest: RunManifest
    rows: Path | None = None


class AnswerRun(Closed):
    """What the operator or the policy says to a proposal."""

    name: Literal["answer"] = "answer"
    run: RunId
    accepted: bool
    reason: Text


class StopRun(Closed):
    """End a run, whatever it waits for."""

    name: Literal["stop"] = "stop"
    run: RunId
    reason: Literal["operator", "settings"]


class EndRun(Closed):
    """The run's own node has come to its end in this process, and everybody has heard of it."""

    name: Literal["end"] = "end"
    run: RunId
    outcome: Annotated[str, Field(max_length=64)]
    reason: Text


class Invite(Closed):
    """Let one newcomer knock, once, until then."""

    name: Literal["invite"] = "invite"
    party: PartyId
    role: PartyRole
    secret_digest: Digest
    expires_s: Count


class Admit(Closed):
    """A guest has knocked at this time, with this secret and these keys."""

    name: Literal["admit"] = "admit"
    party: PartyId
    secret: Secret
    verify_key: Digest
    curve_key: Digest
    at_s: Count


class ConfirmMember(Closed):
    """Two people have compared the words: pin the keys."""

    name: Literal["confirm"] = "confirm"
    party: PartyId


class RemoveMember(Closed):
    """Forget a member and its keys."""

    name: Literal["remove"] = "remove"
    party: PartyId


Command = Annotated[
    SeatMember
    | ProposeRun
    | AnswerRun
    | StopRun
    | EndRun
    | Invite
    | Admit
    | ConfirmMember
    | RemoveMember,
    Field(discriminator="name"),
]


class OperatorCommand(Closed):
    """An input of a federation's role: a person, a policy or this process's own runs speak."""

    kind: Literal["command"] = "command"
    command: Command


class Meet(Closed):
    """From now on this peer's envelopes are read, with this key."""

    kind: Literal["meet"] = "meet"
    party: PartyId
    role: PartyRole
    verify_key: Digest
