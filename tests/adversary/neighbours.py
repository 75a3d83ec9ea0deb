"""The inputs of two neighbouring parties to a run: rows, ids, keys and a secret.

It owns how rows in the order of a run become a file, and which row differs; it makes no move.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from nacl.signing import SigningKey

from hdpvfl_mq.data.preprocess import PreparedData
from hdpvfl_mq.psi import NormalisedIds, normalise, rules_digest
from parties.assets import Assets, ids_digest
from parties.common_rows import in_shared_order
from schemas.alignment import KeptAlignment
from schemas.config import IdRules, RunManifest
from schemas.data import DataSettings
from schemas.ids import COORDINATOR
from schemas.policy import PartyPolicy
from schemas.tensor import Tensor

NAMES = ("bank", "shop", "telco", COORDINATOR)


@cache
def signing_key(name: str) -> SigningKey:
    """A party's key, the same in every run."""
    return SigningKey(hashlib.sha256(b"key of " + name.encode()).digest())


@dataclass(frozen=True)
class Rows:
    """A party's rows in the order all parties share: features, label, weight and offset."""

    X: np.ndarray
    y: np.ndarray
    weights: np.ndarray | None = None
    offset: np.ndarray | None = None

    def replaced(self, row: int, x: np.ndarray, y: float, *, weight=0.0, offset=0.0) -> Rows:
        """The same rows but for one."""
        X, labels = self.X.copy(), self.y.copy()
        X[row], labels[row] = x, y
        weights, offsets = (None if a is None else a.copy() for a in (self.weights, self.offset))
        if weights is not None:
            weights[row] = weight
        if offsets is not None:
            offsets[row] = offset
        return Rows(X, labels, weights, offsets)


@cache
def _ids(count: int, rules: IdRules) -> NormalisedIds:
    return normalise((np.arange(count),), rules)


def differing(one: PreparedData, two: PreparedData) -> int:
    """The row of the file in which neighbours differ."""
    found = np.flatnonzero((one.X != two.X).any(axis=1))
    if found.size:
        return int(found[0])
    pairs = ((one.y, two.y), (one.weights, two.weights), (one.offset, two.offset))
    apart = [np.flatnonzero(a != b) for a, b in pairs if a is not None]
    return int(next((rows[0] for rows in apart if rows.size), 0))


def assets(
    victim: str, policy: PartyPolicy, manifest: RunManifest, rows: Rows, secret: bytes
) -> tuple[Assets, np.ndarray]:
    """What one neighbour brings but for its rows, and their order in this run.

    An alignment with all peers is kept, so a run starts at once.
    """
    count, is_active = len(rows.X), victim == manifest.active_party
    rules = manifest.alignment.ids
    ids = _ids(count, rules)
    kept = KeptAlignment(
        ids_digest=ids_digest(ids),
        parties=tuple(sorted(manifest.parties)),
        id_profile_digest=rules_digest(rules),
        shared_key=hashlib.sha256(b"shared").digest(),
        positions=Tensor.smallest(np.arange(count, dtype=np.int64)),
    )
    blank = PreparedData(
        ids=(),
        X=rows.X,
        y=None,
        weights=None,
        offset=None,
        column_names=tuple(f"x{c}" for c in range(rows.X.shape[1])),
        settings=DataSettings(),
        fingerprint=bytes(32),
    )
    own = Assets(
        party=victim,
        role="active" if is_active else "passive",
        run=manifest.run,
        policy=policy,
        data=blank,
        ids=ids,
        id_rules=rules,
        secret=hashlib.sha256(secret + manifest.run.encode()).digest(),
        salt=bytes(16),
        signing_key=signing_key(victim),
        verify_keys={name: signing_key(name).verify_key for name in NAMES},
        numeric_profile="adversary",
        kept=(kept,),
        wire=manifest.wire,
        speaks=manifest.wire,
    )
    _, order = in_shared_order(own, manifest, np.arange(count))
    return own, order


def in_file_order(
    blank: PreparedData, rows: Rows, order: np.ndarray, kind: str, is_active: bool
) -> PreparedData:
    """The rows as they stand in the party's file."""

    def back(values: np.ndarray | None) -> np.ndarray | None:
        if values is None:
            return None
        filed = np.empty_like(values)
        filed[order] = values
        return filed

    parts = [rows.X, rows.y, rows.weights, rows.offset]
    digest = hashlib.sha256(b"".join(p.tobytes() for p in parts if p is not None)).digest()
    if not is_active:
        return replace(blank, X=back(rows.X), fingerprint=digest)
    settings = DataSettings(
        label_column="y",
        label_kind=kind,
        weight_column=None if rows.weights is None else "v",
        offset_column=None if rows.offset is None else "o",
    )
    return replace(
        blank,
        X=back(rows.X),
        y=back(rows.y),
        weights=back(rows.weights),
        offset=back(rows.offset),
        settings=settings,
        fingerprint=digest,
    )
