"""The messages of a federation: what members and the registrar send each other.

It owns these shapes and their limits; it knows no behaviour. A federation has its own stream beside
its runs: the header then holds the federation's name instead of a run's.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from schemas.base import Count, Digest, Extended, Signature, Strict, Text
from schemas.config import RunManifest
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
from schemas.route import ALL_ROLES, ANY_PARTY, COORDINATOR_ROLE, Route

RunPhase = Literal["proposed", "open", "refused", "over"]


class MemberHello(Extended):
    """A member's service has started or restarted; binds its connection to its name."""

    later: ClassVar[tuple[str, ...]] = ("speaks",)

    kind: Literal["member_hello"] = "member_hello"
    route: ClassVar[Route] = Route(ANY_PARTY, COORDINATOR_ROLE, is_greeting=True)
    epoch: Epoch
    speaks: Version = OLDEST_VERSION  # the newest version of the protocol that the member speaks


class RunProposal(Strict):
    """The active party proposes a run; the registrar forwards it to the other parties."""

    kind: Literal["run_proposal"] = "run_proposal"
    route: ClassVar[Route] = Route(ALL_ROLES, ALL_ROLES)
    manifest: RunManifest


class RunAnswer(Strict):
    """A party accepts a proposed run, or says why it refuses."""

    kind: Literal["run_answer"] = "run_answer"
    route: ClassVar[Route] = Route(ANY_PARTY, COORDINATOR_ROLE)
    run: RunId
    accepted: bool
    reason: Text


class RunStop(Strict):
    """A party cancels a proposed run, or stops a run that it cannot take part in after all."""

    kind: Literal["run_stop"] = "run_stop"
    route: ClassVar[Route] = Route(ANY_PARTY, COORDINATOR_ROLE)
    run: RunId
    reason: Literal["operator", "settings"]


class RunNews(Extended):
    """The phase of a run before and after its own stream, and whom it waits for."""

    later: ClassVar[tuple[str, ...]] = ("wire",)

    kind: Literal["run_news"] = "run_news"
    route: ClassVar[Route] = Route(COORDINATOR_ROLE, ANY_PARTY)
    run: RunId
    phase: RunPhase
    waiting_for: Parties
    reason: Text
    wire: Version = OLDEST_VERSION  # of an open run: the newest version that all its parties speak


class RosterEntry(Strict):
    """A member's name and role; the member sends its keys itself, in `pair`."""

    party: PartyId
    role: PartyRole


class Roster(Strict):
    """The current members of the federation, according to the registrar."""

    kind: Literal["roster"] = "roster"
    route: ClassVar[Route] = Route(COORDINATOR_ROLE, ANY_PARTY)
    members: Annotated[tuple[RosterEntry, ...], Field(max_length=MAX_PASSIVES + 1)]


class Pair(Strict):
    """One of three messages by which two members learn each other's keys.

    The registrar forwards it and replaces the receiver's name by the sender's. 1: the hash of a
    number and of the keys. 2: the other side's number. 3: the number that was hashed. The registrar
    cannot choose keys that lead both sides to the same words.
    """

    kind: Literal["pair"] = "pair"
    route: ClassVar[Route] = Route(ALL_ROLES, ALL_ROLES)
    peer: PartyId
    stage: Annotated[int, Field(ge=1, le=3)]
    value: Digest
    verify_key: Digest
    curve_key: Digest


class PinnedMember(Strict):
    """A member and the keys that another member has pinned for it."""

    party: PartyId
    role: PartyRole
    verify_key: Digest
    curve_key: Digest  # zeros if the settings state only the signing key


class SignedRoster(Strict):
    """Everybody whose keys a member has pinned, itself included, with its signature.

    The registrar forwards it unchanged: the signature shows who signed, not the delivery.
    """

    kind: Literal["signed_roster"] = "signed_roster"
    route: ClassVar[Route] = Route(ALL_ROLES, ALL_ROLES)
    signer: PartyId
    edition: Count  # a later edition replaces an earlier one
    members: Annotated[tuple[PinnedMember, ...], Field(max_length=MAX_PASSIVES + 1)]
    signature: Signature


class KeyChanged(Strict):
    """A member has new keys, signed by the key that the others have pinned.

    The registrar forwards it unchanged: the signatures show whose change it is, not the delivery.
    """

    kind: Literal["key_changed"] = "key_changed"
    route: ClassVar[Route] = Route(ALL_ROLES, ALL_ROLES)
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


class Meet(Extended):
    """Accept this peer's envelopes from now on, with this key, and write to it in this version."""

    later: ClassVar[tuple[str, ...]] = ("speaks",)

    kind: Literal["meet"] = "meet"
    party: PartyId
    role: PartyRole
    verify_key: Digest
    speaks: Version = OLDEST_VERSION


class Forget(Strict):
    """Drop the streams to and from a peer: its name belongs to somebody else from now on."""

    kind: Literal["forget"] = "forget"
    party: PartyId


class SignWith(Strict):
    """Sign this node's envelopes with this key from now on."""

    kind: Literal["sign_with"] = "sign_with"
    verify_key: Digest
