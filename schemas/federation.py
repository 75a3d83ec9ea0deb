"""The messages of a federation: what members and the registrar send, and what operators ask for.

It owns these shapes and their limits; it knows no behaviour. A federation has its own stream beside
its runs: the header then holds the federation's name instead of a run's.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from schemas.base import Closed, Count, Digest, Extended, Signature, Text
from schemas.config import Path, RunManifest
from schemas.ids import (
    MAX_PASSIVES,
    OLDEST_VERSION,
    Epoch,
    Parties,
    PartyId,
    PartyRole,
    RunId,
    Version,
)
from schemas.key_change import KeyChange
from schemas.tensor import Tensor

Secret = Annotated[bytes, Field(min_length=16, max_length=16)]
RunPhase = Literal["proposed", "open", "refused", "over"]


class MemberHello(Extended):
    """A member's service has started or restarted; binds its connection to its name."""

    later: ClassVar[tuple[str, ...]] = ("speaks",)

    kind: Literal["member_hello"] = "member_hello"
    epoch: Epoch
    speaks: Version = OLDEST_VERSION  # the newest version of the protocol that the member speaks


class RunProposal(Closed):
    """The active party proposes a run; the registrar forwards it to the other parties."""

    kind: Literal["run_proposal"] = "run_proposal"
    manifest: RunManifest


class RunAnswer(Closed):
    """A party accepts a proposed run, or says why it refuses."""

    kind: Literal["run_answer"] = "run_answer"
    run: RunId
    accepted: bool
    reason: Text


class RunStop(Closed):
    """A party cancels a proposed run, or stops a run that it cannot take part in after all."""

    kind: Literal["run_stop"] = "run_stop"
    run: RunId
    reason: Literal["operator", "settings"]


class RunNews(Extended):
    """The phase of a run before and after its own stream, and whom it waits for."""

    later: ClassVar[tuple[str, ...]] = ("wire",)

    kind: Literal["run_news"] = "run_news"
    run: RunId
    phase: RunPhase
    waiting_for: Parties
    reason: Text
    wire: Version = OLDEST_VERSION  # of an open run: the newest version that all its parties speak


class RosterEntry(Closed):
    """A member's name and role; the member sends its keys itself, in `pair`."""

    party: PartyId
    role: PartyRole


class Roster(Closed):
    """The current members of the federation, according to the registrar."""

    kind: Literal["roster"] = "roster"
    members: Annotated[tuple[RosterEntry, ...], Field(max_length=MAX_PASSIVES + 1)]


class Pair(Closed):
    """One of three messages by which two members learn each other's keys.

    The registrar forwards it and replaces the receiver's name by the sender's. 1: the hash of a
    number and of the keys. 2: the other side's number. 3: the number that was hashed. The registrar
    cannot choose keys that lead both sides to the same words.
    """

    kind: Literal["pair"] = "pair"
    peer: PartyId
    stage: Annotated[int, Field(ge=1, le=3)]
    value: Digest
    verify_key: Digest
    curve_key: Digest


class PinnedMember(Closed):
    """A member and the keys that another member has pinned for it."""

    party: PartyId
    role: PartyRole
    verify_key: Digest
    curve_key: Digest  # zeros if the settings state only the signing key


class SignedRoster(Closed):
    """Everybody whose keys a member has pinned, itself included, with its signature.

    The registrar forwards it unchanged: the signature shows who signed, not the delivery.
    """

    kind: Literal["signed_roster"] = "signed_roster"
    signer: PartyId
    edition: Count  # a later edition replaces an earlier one
    members: Annotated[tuple[PinnedMember, ...], Field(max_length=MAX_PASSIVES + 1)]
    signature: Signature


class KeyChanged(Closed):
    """A member has new keys, signed by the key that the others have pinned.

    The registrar forwards it unchanged: the signatures show whose change it is, not the delivery.
    """

    kind: Literal["key_changed"] = "key_changed"
    change: KeyChange


FederationMessage = (
    MemberHello
    | RunProposal
    | RunAnswer
    | RunStop
    | RunNews
    | Roster
    | SignedRoster
    | Pair
    | KeyChanged
)


# -- what operators and their policies ask of the roles -----------------------------------------


class SeatMember(Closed):
    """A member whose keys the settings state: exchanged by hand and trusted."""

    name: Literal["seat"] = "seat"
    party: PartyId
    role: PartyRole
    verify_key: Digest
    curve_key: Digest


class ProposeRun(Closed):
    """Propose a run; `rows` is this party's file of rows to score and `out` where the scores go; a
    `session` stays open for queries about single people.
    """

    name: Literal["propose"] = "propose"
    manifest: RunManifest
    rows: Path | None = None
    out: Path | None = None
    session: bool = False


class AnswerRun(Closed):
    """The answer of the operator or the policy to a proposal."""

    name: Literal["answer"] = "answer"
    run: RunId
    accepted: bool
    reason: Text


class StopRun(Closed):
    """Stop a run, whatever phase it is in."""

    name: Literal["stop"] = "stop"
    run: RunId
    reason: Literal["operator", "settings"]


class EndRun(Closed):
    """The run's node has ended in this process, and every party has acknowledged the end."""

    name: Literal["end"] = "end"
    run: RunId
    outcome: Annotated[str, Field(max_length=64)]
    reason: Text


class CloseRun(Closed):
    """The run's coordinator has closed it; some parties have not acknowledged that yet."""

    name: Literal["close"] = "close"
    run: RunId
    outcome: Annotated[str, Field(max_length=64)]
    reason: Text


class CannotOpen(Closed):
    """The broker cannot open a run that its parties have agreed on."""

    name: Literal["cannot_open"] = "cannot_open"
    run: RunId
    reason: Text


class Invite(Closed):
    """Let one new member knock, once, until the invitation expires."""

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


class ReplaceKeys(Closed):
    """Sign with this party's new keys from now on, and tell the others."""

    name: Literal["replace_keys"] = "replace_keys"
    change: KeyChange


class AskScores(Closed):
    """Ask the partners of a scoring session for the people at these places."""

    name: Literal["ask_scores"] = "ask_scores"
    places: Tensor


class EndScoring(Closed):
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


class OperatorCommand(Closed):
    """An input from inside this process: from a person, a policy or one of its runs."""

    kind: Literal["command"] = "command"
    command: Command


class Meet(Extended):
    """Accept this peer's envelopes from now on, with this key, and write to it in this version."""

    later: ClassVar[tuple[str, ...]] = ("speaks",)

    kind: Literal["meet"] = "meet"
    party: PartyId
    role: PartyRole
    verify_key: Digest
    speaks: Version = OLDEST_VERSION


class Forget(Closed):
    """Drop the streams to and from a peer: its name belongs to somebody else from now on."""

    kind: Literal["forget"] = "forget"
    party: PartyId


class SignWith(Closed):
    """Sign this node's envelopes with this key from now on."""

    kind: Literal["sign_with"] = "sign_with"
    verify_key: Digest
