"""What a registrar knows about its federation: members, invitations, and runs its members agreed
on.

It owns these values and what is computed from them alone; the registrar decides when they change.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from broker.run_phases import AgreedRun, Closed, Over, Proposed, Refused, Stopping, is_busy
from hdpvfl_mq.errors import PeerError
from schemas.commands import Admit
from schemas.federation import SignedRoster
from schemas.ids import OLDEST_VERSION, PartyId, PartyRole, RunId

_NONE: Mapping[Any, Any] = MappingProxyType({})


@dataclass(frozen=True)
class Seat:
    """A member and its keys."""

    role: PartyRole
    verify_key: bytes
    curve_key: bytes


@dataclass(frozen=True)
class OpenInvitation:
    """One guest may knock under this name, once."""

    role: PartyRole
    secret_digest: bytes
    expires_s: int
    guesses: int = 0


@dataclass(frozen=True, kw_only=True)
class Standing:
    """A registrar's state; a federation lasts for years, so it has one phase only."""

    epochs: Mapping[PartyId, int] = field(default_factory=lambda: _NONE)
    members: Mapping[PartyId, Seat] = field(default_factory=lambda: _NONE)
    invitations: Mapping[PartyId, OpenInvitation] = field(default_factory=lambda: _NONE)
    former: Mapping[PartyId, tuple[bytes, ...]] = field(default_factory=lambda: _NONE)  # replaced
    # Keys that removed members had; a newcomer of the same name starts from zero.
    past: Mapping[PartyId, bytes] = field(default_factory=lambda: _NONE)
    # How many messages of a kind were forwarded from one member to another, or to all.
    forwarded: Mapping[tuple[PartyId, PartyId, str], int] = field(default_factory=lambda: _NONE)
    rosters: Mapping[PartyId, SignedRoster] = field(default_factory=lambda: _NONE)  # as signed
    runs: Mapping[RunId, AgreedRun] = field(default_factory=lambda: _NONE)
    speaks: Mapping[PartyId, int] = field(default_factory=lambda: _NONE)  # above the oldest version
    version: int = OLDEST_VERSION  # the newest that this process of the broker speaks

    def version_of(self, party: PartyId) -> int:
        """The newest version of the protocol that a member has said it speaks."""
        return self.speaks.get(party, OLDEST_VERSION)

    def with_run(self, name: RunId, run: AgreedRun) -> Standing:
        """The same federation with one run changed."""
        return replace(self, runs=MappingProxyType({**self.runs, name: run}))

    def with_member(self, party: PartyId, seat: Seat) -> Standing:
        """The same federation with one member added, or with new keys for a member."""
        return replace(self, members=MappingProxyType({**self.members, party: seat}))

    def has_heard_of(self, party: PartyId, seat: Seat) -> bool:
        """Whether a member has this seat, had replaced its key, or was removed with it."""
        keys = (*self.former.get(party, ()), self.past.get(party))
        return self.members.get(party) == seat or seat.verify_key in keys

    def without_member(self, party: PartyId) -> Standing:
        """The same federation with one member removed."""
        members = {name: seat for name, seat in self.members.items() if name != party}
        rosters = {name: signed for name, signed in self.rosters.items() if name != party}
        speaks = {name: version for name, version in self.speaks.items() if name != party}
        return replace(
            self,
            members=MappingProxyType(members),
            rosters=MappingProxyType(rosters),
            speaks=MappingProxyType(speaks),
            past=MappingProxyType({**self.past, party: self.members[party].verify_key}),
            forwarded=MappingProxyType(
                {place: count for place, count in self.forwarded.items() if party not in place[:2]}
            ),
        )

    def with_name_reused(self, party: PartyId) -> Standing:
        """The federation with the history of this name forgotten, for a newcomer who reuses it.

        The previous member's key counts as replaced, so that settings do not bring it back.
        """
        epochs = {name: epoch for name, epoch in self.epochs.items() if name != party}
        past = {name: key for name, key in self.past.items() if name != party}
        former = {**self.former, party: (*self.former.get(party, ()), self.past[party])}
        return replace(
            self,
            epochs=MappingProxyType(epochs),
            past=MappingProxyType(past),
            former=MappingProxyType(former),
        )

    def having_forwarded(self, sender: PartyId, to: PartyId, kind: str, *, most: int) -> Standing:
        """The same federation after one more forwarded message; PeerError above the limit."""
        count = self.forwarded.get((sender, to, kind), 0) + 1
        if count > most:
            raise PeerError(f"the limit of {most} messages of kind {kind} from {sender} is reached")
        counts = {**self.forwarded, (sender, to, kind): count}
        return replace(self, forwarded=MappingProxyType(counts))

    def with_invitation(self, party: PartyId, opened: OpenInvitation | None) -> Standing:
        """The same federation with this invitation for a new member, or without one."""
        others = {name: each for name, each in self.invitations.items() if name != party}
        if opened is not None:
            others[party] = opened
        return replace(self, invitations=MappingProxyType(others))


def knock_fault(state: Standing, guest: Admit) -> str | None:
    """Why a guest is not admitted."""
    opened = state.invitations.get(guest.party)
    if opened is None:
        return "no invitation is open for this name: it was used, or burnt; ask for a new one"
    if guest.at_s > opened.expires_s:
        return "the invitation has expired: ask for a new one"
    if hashlib.sha256(guest.secret).digest() != opened.secret_digest:
        return "the invitation's secret is wrong: ask for a new one"
    return None


def in_vain(runs: Iterable[AgreedRun], active: PartyId) -> int:
    """Proposals of one active party that came to nothing since its last completed run."""
    count = 0
    for run in runs:  # in the order in which they were proposed
        if run.manifest.active_party != active or is_busy(run):
            continue
        count = 0 if _outcome(run) == "completed" else count + 1
    return count


def describe(run: AgreedRun) -> dict[str, Any]:
    """A run in a few words."""
    return {
        "phase": run.phase,
        "active": run.manifest.active_party,
        "passive": list(run.manifest.passive_parties),
        "waiting_for": list(run.waiting_for) if isinstance(run, Proposed) else [],
        "outcome": _outcome(run),
        "reason": run.reason if isinstance(run, Stopping | Closed | Refused | Over) else "",
    }


def _outcome(run: AgreedRun) -> str:
    return run.outcome if isinstance(run, Closed | Over) else ""
