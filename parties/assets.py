"""What a party brings into a run, and what it remembers of it.

It owns the shapes of a party's possessions and state; it makes no move. Arrays in a state are never
written to; a refused move leaves the state as it was.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

import numpy as np
from nacl.bindings import crypto_scalarmult
from nacl.signing import SigningKey, VerifyKey

from hdpvfl_mq.arrays.chunked import Room
from hdpvfl_mq.arrays.unreleased import FloatVector
from hdpvfl_mq.data.preprocess import PreparedData
from hdpvfl_mq.glm.block import ColumnBlock
from hdpvfl_mq.glm.refit import Told
from hdpvfl_mq.machine import Received
from hdpvfl_mq.plan.run_plan import RunPlan
from hdpvfl_mq.privacy.mechanism import Mechanism
from hdpvfl_mq.psi import IdProfile, NormalisedIds, Session
from schemas.alignment import KeptAlignment
from schemas.config import IdRules, PartyPolicy, RunManifest
from schemas.data import DataSettings
from schemas.ids import PartyId, RunId
from schemas.privacy import Release
from schemas.records import LedgerStanding


def id_profile(rules: IdRules) -> IdProfile:
    """A party's id rules in the words of entity resolution."""
    return IdProfile(
        kind=rules.kind,
        columns=rules.columns,
        casefold=rules.casefold,
        duplicates=rules.duplicates,
        empties=rules.empties,
    )


@dataclass(frozen=True)
class TrainedModel:
    """What an earlier run left this party."""

    manifest: RunManifest
    data: DataSettings  # how its rows were prepared, constants filled in
    rows: int  # common rows it learnt from
    dataset: str  # the name they have in the ledger
    weights: FloatVector = field(repr=False)
    # Of the scores of the passive parties that were there, after one round.
    told: Mapping[PartyId, Told] = field(default_factory=lambda: MappingProxyType({}), repr=False)


@dataclass(frozen=True)
class Assets:
    """What a party brings into a run and never gives away."""

    party: PartyId
    role: Literal["active", "passive"]
    run: RunId
    policy: PartyPolicy
    data: PreparedData = field(repr=False)
    ids: NormalisedIds = field(repr=False)
    id_rules: IdRules
    secret: bytes = field(repr=False)  # 32 bytes for this run only
    salt: bytes = field(repr=False)
    signing_key: SigningKey = field(repr=False)  # Ed25519 draws nothing: signing is pure
    verify_keys: Mapping[PartyId, VerifyKey] = field(repr=False)
    numeric_profile: str
    kept: tuple[KeptAlignment, ...] = field(default=(), repr=False)  # of these rows and id rules
    model: TrainedModel | None = field(default=None, repr=False)  # to predict with
    found: KeptAlignment | None = field(default=None, repr=False)  # by an earlier start of the run
    # Gives every array that has an entry for each row, in memory or mapped from disk.
    room: Room = field(default=np.empty, repr=False)

    def kept_for(self, manifest: RunManifest) -> KeptAlignment | None:
        """The alignment with exactly these parties that may be used again."""
        names = tuple(sorted((manifest.active_party, *manifest.passive_parties)))
        found = (kept for kept in self.kept if kept.parties == names)
        return next(found, None) if manifest.alignment.reuse else None

    def sealing_key(self, peer: PartyId, release_id: str) -> bytes:
        """A key that this party and one peer alone can compute, for one release."""
        own = bytes(self.signing_key.to_curve25519_private_key())
        shared = crypto_scalarmult(own, bytes(self.verify_keys[peer].to_curve25519_public_key()))
        address = release_id.encode()
        return hashlib.blake2b(
            address, key=shared, person=b"hdpvfl sealed 1", digest_size=32
        ).digest()

    def derived(self, purpose: bytes) -> bytes:
        """A secret of its own for another purpose than noise."""
        return hashlib.blake2b(purpose, key=self.secret, digest_size=32).digest()


@dataclass(frozen=True)
class Training:
    """Everything that is fixed once the common rows are known."""

    plan: RunPlan
    block: ColumnBlock
    mechanism: Mechanism

    @property
    def start_weights(self) -> FloatVector:
        """Public weights before the first round; an intercept starts where the loss says."""
        return self.block.start_weights(
            self.plan.family.start_theta if self.block.intercept else 0.0
        )


@dataclass(frozen=True, kw_only=True)
class MemberState:
    """What the journal says so far; arrays in it are never written to."""

    phase: str = "joining"
    standing: LedgerStanding | None = None
    waiting_for: tuple[PartyId, ...] = ()
    manifest: RunManifest | None = None
    session: Session | None = field(default=None, repr=False)
    held: tuple[Received, ...] = field(default=(), repr=False)
    align_total: int = 0  # blocks of entity resolution, once the session is let go of
    alignment: KeptAlignment | None = field(default=None, repr=False)
    training: Training | None = field(default=None, repr=False)
    planned: int = 0
    round: int = 0
    last_released: int = -1
    transcript: bytes = b""
    # Parties left out, each from now until the round at which it is let in again.
    away_until: Mapping[PartyId, int] = field(default_factory=lambda: MappingProxyType({}))
    w: FloatVector = field(default_factory=lambda: np.zeros(0), repr=False)
    w_sum: FloatVector = field(default_factory=lambda: np.zeros(0), repr=False)
    w_count: int = 0
    energies: tuple[float, ...] = ()  # of the released residuals, by epoch; public
    is_done: bool = False
    witnesses: frozenset[PartyId] = frozenset()  # peers that co-signed the final ledger head
    outcome: str = ""
    reason: str = ""

    def is_away(self, party: PartyId) -> bool:
        """Whether the current round goes on without this party."""
        return self.round < self.away_until.get(party, 0)


def next_transcript(transcript: bytes, release: Release) -> bytes:
    """Hash of all that was released so far, in the order of the protocol, not of arrival."""
    payload = hashlib.sha256(release.tensor.data).digest()
    return hashlib.sha256(transcript + release.release_id.encode() + b"\x00" + payload).digest()
