"""The phases of a party: one type each, holding exactly what the party then knows.

It owns what a party remembers; it makes no move. Every value in a phase is frozen: arrays are never
written to, mappings are read-only, and a refused move leaves the phase unchanged.

starting -> joining -> accepted -> aligning -> agreeing -> aligned -> training -> closed

From every phase after the first: -> leaving -> closed, when this party or a peer leaves the run.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any, TypeVar

from hdpvfl_mq.arrays.unreleased import FloatVector
from hdpvfl_mq.machine import Received
from hdpvfl_mq.methods.run_plan import RunPlan
from hdpvfl_mq.privacy.mechanism import Mechanism
from hdpvfl_mq.psi import Passes, Session
from schemas.alignment import KeptAlignment
from schemas.config import RunManifest
from schemas.ids import PartyId
from schemas.messages import AlignBlock
from schemas.privacy import Release
from schemas.records import LedgerStanding
from schemas.signed import Agreement

OTHER_WITNESSES = 3  # passive parties that remember a passive party's ledger
_NONE: Mapping[Any, Any] = MappingProxyType({})
_State = TypeVar("_State")
_Kind = TypeVar("_Kind")


def changed(state: _State, **fields: Any) -> _State:
    """`dataclasses.replace` for a frozen state, five times as fast: a round calls it a dozen times.

    It copies the fields and nothing else, so a cached property is computed again.
    """
    kind, after = type(state), object.__new__(type(state))
    known = kind.__dataclass_fields__  # type: ignore[attr-defined]  # every state has them
    if not fields.keys() <= known.keys():
        raise TypeError(f"{kind.__name__} has no {', '.join(fields.keys() - known.keys())}")
    copy = vars(after)
    copy.update(vars(state))
    if len(copy) != len(known):  # cached properties
        for name in copy.keys() - known.keys():
            del copy[name]
    copy.update(fields)
    return after


@dataclass(frozen=True)
class Terms:
    """Digests of everything that all parties must agree on before the first release."""

    manifest: bytes
    members: bytes
    toss: bytes
    order: bytes
    plan: bytes

    @cached_property
    def digest(self) -> bytes:
        """One digest of all of them: what every party signs."""
        parts = (self.manifest, self.members, self.toss, self.order, self.plan)
        return hashlib.sha256(b"hdpvfl-mq agreement 1\x00" + b"".join(parts)).digest()


@dataclass(frozen=True)
class Setup:
    """What is fixed once the common rows are known; the rows themselves are in the memo."""

    plan: RunPlan
    mechanism: Mechanism
    common: bytes = field(repr=False)  # which of this party's ids are common, one bit each
    alignment: KeptAlignment | None = field(default=None, repr=False)

    @cached_property
    def key(self) -> bytes:
        """The key of this run's rows in the memo."""
        return hashlib.sha256(self.plan.digest + self.common).digest()


@dataclass(frozen=True, kw_only=True)
class RoundState:
    """Weights so far; fields with metadata `fixed` follow from the setup and are not stored."""

    w: FloatVector = field(repr=False)

    @property
    def final_weights(self) -> FloatVector:
        """The weights this party keeps after the run."""
        return self.w


@dataclass(frozen=True, kw_only=True)
class ActiveRounds(RoundState):
    """The active party's round state: shares of the current round, as received and as numbers."""

    shares: Mapping[PartyId, tuple[Release, FloatVector]] = field(
        default_factory=lambda: MappingProxyType({}), repr=False
    )

    def needs(self, party: PartyId) -> bool:
        """Whether the current round waits for this party's message."""
        return party not in self.shares

    @property
    def own_losses(self) -> tuple[float, ...]:
        """The party's own loss in the last rounds, for its console and report; never sent."""
        return ()


@dataclass(frozen=True, kw_only=True)
class PassiveRounds(RoundState):
    """A passive party's round state."""

    shared: int = -1  # the last round for which this party has sent a share


@dataclass(frozen=True, kw_only=True)
class Phase:
    """Fields of every phase."""

    waiting_for: tuple[PartyId, ...] = ()
    reason: str = ""  # why the run ended or is about to, for this party's console


@dataclass(frozen=True, kw_only=True)
class Starting(Phase):
    """No process of this party has started yet."""


@dataclass(frozen=True, kw_only=True)
class Running(Phase):
    """A process has started and read its ledger."""

    standing: LedgerStanding


@dataclass(frozen=True, kw_only=True)
class Joining(Running):
    """Waiting for the offer of a run."""


@dataclass(frozen=True, kw_only=True)
class Accepted(Running):
    """This party has accepted the offer and waits for all others."""

    manifest: RunManifest
    held: tuple[Received[AlignBlock], ...] = field(default=(), repr=False)  # came too early
    agreements: Mapping[PartyId, Agreement] = field(default_factory=lambda: _NONE)  # came too early


@dataclass(frozen=True, kw_only=True)
class Aligning(Running):
    """Finding the common entities."""

    manifest: RunManifest
    toss: bytes  # digest of the coordinator's start message
    session: Session | Passes = field(repr=False)
    agreements: Mapping[PartyId, Agreement] = field(default_factory=lambda: _NONE)


@dataclass(frozen=True, kw_only=True)
class WithRows(Running):
    """The common rows are known; the session may still have blocks to send."""

    setup: Setup = field(repr=False, metadata={"fixed": True})
    session: Session | Passes | None = field(default=None, repr=False, metadata={"fixed": True})
    align_total: int = 0  # blocks of entity resolution, once the session has finished

    @property
    def manifest(self) -> RunManifest:
        """The manifest this party accepted."""
        return self.setup.plan.manifest


@dataclass(frozen=True, kw_only=True)
class Agreeing(WithRows):
    """Waiting for this party's reserve, and for everybody's signature under the same terms."""

    terms: Terms
    residuals: bytes = field(repr=False)  # start value of the residuals' hash
    is_reserved: bool = False
    agreements: Mapping[PartyId, Agreement] = field(default_factory=lambda: _NONE)


@dataclass(frozen=True, kw_only=True)
class Aligned(WithRows):
    """Waiting for the coordinator's first plan of rounds."""

    terms: Terms
    residuals: bytes = field(repr=False)
    # One message of each peer that got the plan before this party.
    early: Mapping[PartyId, Received[Any]] = field(default_factory=lambda: _NONE, repr=False)


@dataclass(frozen=True, kw_only=True)
class Training(WithRows):
    """Rounds are running; the method owns what a round computes."""

    rounds: RoundState = field(repr=False, metadata={"fixed": True})  # stored separately
    planned: int = 0
    round: int = 0
    last_released: int = -1
    transcript: bytes = b""
    terms: bytes = b""  # digest of what all parties have signed
    residuals: bytes = b""  # keyed hash of all residuals so far, the same at every party
    residual_count: int = 0
    orders: tuple[bytes, ...] = ()  # hashes after each of the coordinator's last orders
    order_count: int = 0
    echoes: Mapping[PartyId, tuple[int, bytes]] = field(default_factory=lambda: _NONE)
    # Parties left out, each until the round in which it takes part again.
    away_until: Mapping[PartyId, int] = field(default_factory=lambda: MappingProxyType({}))
    # The last round of which each party sent a share after the others had gone on without it.
    late: Mapping[PartyId, int] = field(default_factory=lambda: MappingProxyType({}))
    is_done: bool = False
    witnesses: frozenset[PartyId] = frozenset()  # peers that co-signed the final ledger head
    endings: Mapping[PartyId, bytes] = field(default_factory=lambda: _NONE)  # signatures of the end
    is_signable: bool = False  # the ledger was read after the last round; `endings` are verified
    has_forwarded: bool = False  # the active party has forwarded the signatures in `endings`
    forwarded_of: frozenset[PartyId] = frozenset()  # parties whose signatures it has forwarded
    has_reported: bool = False
    is_closing: bool = False  # left out, and the others have completed the run

    def is_away(self, party: PartyId) -> bool:
        """Whether the current round runs without this party."""
        return self.round < self.away_until.get(party, 0)

    def witnesses_of(self, owner: PartyId) -> frozenset[PartyId]:
        """Which parties remember a party's ledger after this run: linear in their number.

        All passive parties remember the active party's ledger; any other ledger is remembered by
        the active party and at most three more, drawn from what all parties have signed.
        """
        manifest = self.manifest
        if owner == manifest.active_party:
            return frozenset(manifest.passive_parties)

        def rank(candidate: PartyId) -> bytes:
            return hashlib.sha256(self.terms + f"{owner}\x00{candidate}".encode()).digest()

        others = sorted((p for p in manifest.passive_parties if p != owner), key=rank)
        return frozenset((manifest.active_party, *others[:OTHER_WITNESSES]))


@dataclass(frozen=True, kw_only=True)
class Over(Running):
    """This party sends its peers nothing more."""

    outcome: str
    manifest: RunManifest | None = None
    trained: Training | None = field(default=None, repr=False)  # where training ended


@dataclass(frozen=True, kw_only=True)
class Leaving(Over):
    """Somebody has left the run; wait a few seconds for the coordinator to close it."""


@dataclass(frozen=True, kw_only=True)
class Closed(Over):
    """The run is over."""


def training_of(state: Phase) -> Training | None:
    """The training state of a run that trains or has trained."""
    found = state.trained if isinstance(state, Over) else state
    return found if isinstance(found, Training) else None


def setup_of(state: Phase) -> Setup | None:
    """What is fixed once the common rows are known."""
    found = state.trained if isinstance(state, Over) else state
    return found.setup if isinstance(found, WithRows) else None


def checked(kind: type[_Kind], value: object) -> _Kind:
    """The value, of the kind that a method's moves need; AssertionError if it is another."""
    if not isinstance(value, kind):
        raise AssertionError(f"{type(value).__name__} instead of {kind.__name__}")
    return value
