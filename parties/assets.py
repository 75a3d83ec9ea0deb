"""What a party brings into a run and never sends: rows, ids, keys, policy, secret.

It owns the shape of a party's assets and the keys derived from its secret; it makes no move.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np
from nacl.bindings import crypto_scalarmult
from nacl.signing import SigningKey, VerifyKey

from hdpvfl_mq.arrays.chunked import Allocate
from hdpvfl_mq.arrays.memo import Memo
from hdpvfl_mq.arrays.unreleased import FloatVector
from hdpvfl_mq.data.preprocess import PreparedData
from hdpvfl_mq.engine.port import Engine, LocalEngine
from hdpvfl_mq.methods.score_regression import ScoreRegression
from hdpvfl_mq.psi import KeyedWorkspace, NormalisedIds, Workspace, marked_nonce
from hdpvfl_mq.wire.signing import is_signed, sign
from schemas.alignment import KeptAlignment
from schemas.config import IdRules, RunManifest
from schemas.data import DataSettings
from schemas.ids import OLDEST_VERSION, PartyId, PartyRole, RunId, release_id
from schemas.policy import PartyPolicy
from schemas.privacy import Release


def ids_digest(ids: NormalisedIds) -> bytes:
    """The key of a kept alignment: these ids in this order, whatever the other cells hold."""
    return ids.digest


@dataclass(frozen=True)
class TrainedModel:
    """The model that an earlier run left this party."""

    manifest: RunManifest
    data: DataSettings  # how its rows were prepared, constants filled in
    rows: int  # common rows it was trained on
    dataset: str  # the data set's name in the ledger
    weights: FloatVector = field(repr=False)
    weights_private: bool = False  # w~: post-processing of booked releases, so its use is free
    score_size: float = 1.0  # deviation of the scores of private weights; as private as the weights
    # What each partner's scores are multiplied by; after descent the factor is 1.
    coefficients: Mapping[PartyId, float] = field(default_factory=lambda: MappingProxyType({}))
    # For each passive party that took part; empty after descent.
    score_regressions: Mapping[PartyId, ScoreRegression] = field(
        default_factory=lambda: MappingProxyType({}), repr=False
    )


@dataclass(frozen=True)
class Assets:
    """What a party brings into a run and never sends."""

    party: PartyId
    role: PartyRole
    run: RunId
    policy: PartyPolicy
    data: PreparedData = field(repr=False)
    ids: NormalisedIds = field(repr=False)
    id_rules: IdRules
    secret: bytes = field(repr=False)  # 32 bytes, for this run only
    salt: bytes = field(repr=False)
    signing_key: SigningKey = field(repr=False)  # Ed25519 is deterministic, so signing is pure
    verify_keys: Mapping[PartyId, VerifyKey] = field(repr=False)
    numeric_profile: str
    former_keys: tuple[VerifyKey, ...] = ()  # this party's earlier keys, each replaced by the next
    kept: tuple[KeptAlignment, ...] = field(default=(), repr=False)  # for these ids and id rules
    approved: bytes | None = None  # digest of the manifest this party agreed to beforehand
    model: TrainedModel | None = field(default=None, repr=False)  # to predict with
    kept_gram: Release | None = field(default=None, repr=False)  # X'X of this data set, noised
    found: KeptAlignment | None = field(default=None, repr=False)  # by an earlier start of the run
    # Allocates every array with an entry per row, in memory or mapped from disk.
    allocate: Allocate = field(default=np.empty, repr=False)
    engine: Engine = field(default_factory=LocalEngine, repr=False)  # computes products of rows
    wire: int = OLDEST_VERSION  # the version of the protocol that this run uses
    speaks: int = OLDEST_VERSION  # the newest that this party speaks

    def kept_for(self, manifest: RunManifest) -> KeptAlignment | None:
        """The alignment with exactly these parties, if the manifest allows its reuse."""
        names = tuple(sorted(manifest.parties))
        found = (kept for kept in self.kept if kept.parties == names)
        return next(found, None) if manifest.alignment.reuse and not self.is_lowered else None

    @property
    def is_lowered(self) -> bool:
        """Whether this party speaks a newer version than the run; entity resolution then shows
        whether the others do too (parties/lowered.py).
        """
        return self.speaks > self.wire

    @property
    def identity(self) -> tuple[VerifyKey, ...]:
        """Every key that has ever signed under this party's name."""
        return (self.signing_key.verify_key, *self.former_keys)

    @property
    def trained(self) -> TrainedModel:
        """The model of a run that predicts; admission has checked that there is one."""
        assert self.model is not None
        return self.model

    def release_id(self, party: PartyId, kind: str, round_: int) -> str:
        """The name of one release of this run; it never changes."""
        return release_id(self.run, party, kind, round_)

    def sealing_key(self, peer: PartyId, release_id: str) -> bytes:
        """A key for one release that only this party and one peer can compute."""
        theirs = self.verify_keys[peer]
        shared = self.memo.once(("shared", peer), bytes(theirs), lambda: self._shared(theirs))
        address = release_id.encode()
        return hashlib.blake2b(
            address, key=shared, person=b"hdpvfl sealed 1", digest_size=32
        ).digest()

    def _shared(self, theirs: VerifyKey) -> bytes:
        """A secret that two parties can compute from their signing keys, and nobody else can."""
        own = bytes(self.signing_key.to_curve25519_private_key())
        return bytes(crypto_scalarmult(own, bytes(theirs.to_curve25519_public_key())))

    @cached_property
    def workspace(self) -> Workspace:
        """What this party's session works with; not part of any state.

        Its secret is derived from these ids: otherwise a run with other ids would mask them by the
        same bytes. No other cell enters it, so nothing that is sent before a release depends on
        one.
        """
        secret = self.derived(b"entity resolution" + ids_digest(self.ids))
        parts: dict[str, Any] = {
            "allocate": self.allocate,
            "nonce": marked_nonce(secret) if self.is_lowered else None,
            "engine": self.engine,
            "signatures": PartySignatures(self),
        }
        if self.ids.keys is not None:
            return KeyedWorkspace(self.ids, secret, **parts)
        return Workspace(self.ids.ids, secret, **parts)

    @cached_property
    def memo(self) -> Memo:
        """Arrays with an entry for every common row; not part of any state."""
        return Memo()

    def derived(self, purpose: bytes) -> bytes:
        """A secret for a purpose other than noise, derived from the run's secret."""
        return hashlib.blake2b(purpose, key=self.secret, digest_size=32).digest()


@dataclass(frozen=True)
class PartySignatures:
    """Signatures as entity resolution needs them, with the keys of one party."""

    own: Assets = field(repr=False)

    def sign(self, statement: bytes) -> bytes:
        """This party's signature."""
        return sign(self.own.signing_key, statement)

    def is_signed(self, party: PartyId, statement: bytes, signature: bytes) -> bool:
        """Whether a peer has signed the statement."""
        return is_signed(self.own.verify_keys[party], statement, signature)
