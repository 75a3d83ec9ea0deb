"""One fit: make parties from standardised columns, run them, and return their models.

It owns the federation of an estimator; its roles, journals and ledgers are those of production, in
memory. The rows are already aligned, so entity resolution reuses a kept alignment.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hdpvfl_mq.app.demo.rehearsal import Rehearsal
from hdpvfl_mq.app.estimators.columns import Matrix, Standardised
from hdpvfl_mq.app.estimators.ledgers import LedgerFolder
from hdpvfl_mq.data.preprocess import PreparedData
from hdpvfl_mq.data.tables import Column
from hdpvfl_mq.errors import RefusedError
from hdpvfl_mq.privacy.accountant import Spent, epsilon_shown
from hdpvfl_mq.psi import normalise, rules_digest
from parties.assets import ids_digest
from parties.phases import Closed
from parties.process.ledger_book import LedgerBook
from parties.process.models import model_of
from parties.rounds.private_model import PrivatePassive
from schemas.alignment import KeptAlignment
from schemas.config import AlignmentSpec, IdRules, RunManifest
from schemas.data import DataSettings, NamedColumn
from schemas.model import LabelKind
from schemas.policy import PartyPolicy
from schemas.privacy import Budget, Release
from schemas.tensor import Tensor

ACTIVE = "active"
IDS = IdRules(kind="integer")
ALIGNMENT = AlignmentSpec(ids=IDS, rows_min=1)


@dataclass(frozen=True)
class Label:
    """The active party's label: its values, their kind, and the constants that made them."""

    values: Matrix
    kind: LabelKind
    centre: float = 0.0
    scale: float = 1.0


@dataclass(frozen=True)
class Spend:
    """One party's spend in one run, and in all runs that its ledger knows."""

    spent: Spent
    lifetime_epsilon: float
    delta: float
    noise_std: float
    disclosed_rows: int  # agreed rows whose scores left without noise; epsilon does not cover them


def composed(spends: Sequence[Spend]) -> dict[str, float]:
    """The joint cost of the runs of one fit; without a ledger no earlier runs count."""
    spent, last = [spend.spent for spend in spends], spends[-1]
    total = Spent(
        sum(each.mu2_units for each in spent),
        sum(each.tau_units for each in spent),
        sum(each.exact for each in spent),
        tuple(sorted(units for each in spent for units in each.pure)),
    )
    epsilon = epsilon_shown(total, last.delta)
    return {
        "epsilon": epsilon,
        "epsilon_lifetime": max(epsilon, last.lifetime_epsilon),
        "delta": last.delta,
        "noise_std": last.noise_std,
        "disclosed_rows": sum(spend.disclosed_rows for spend in spends),
    }


@dataclass(frozen=True)
class FittedRun:
    """The result of one training: every party's model and spend, the active party's own loss."""

    models: dict[str, dict[str, Any]] = field(repr=False)
    privacy: dict[str, Spend]
    history: tuple[float, ...] = field(repr=False)
    grams: dict[str, Release] = field(default_factory=dict, repr=False)  # noised X'X, paid once


def party_names(count: int) -> tuple[str, ...]:
    """Names of the active party and the passive parties."""
    return (ACTIVE, *(f"passive-{number}" for number in range(1, count)))


def train(
    manifest: RunManifest,
    X: Matrix,
    parts: Sequence[Standardised],
    label: Label,
    *,
    secret: bytes,
    ledger: LedgerFolder | None = None,
    grams: Mapping[str, Release] | None = None,
) -> FittedRun:
    """Run one training to its end; RefusedError if a policy or a ledger forbids it.

    `grams` are those of an earlier run on the same rows and columns: they are not paid again.
    """
    ids = np.arange(len(X), dtype=np.int64)  # one column for all, so it is read once
    data = {
        party: _prepared(ids, part.apply(X), part, label if party == ACTIVE else None)
        for party, part in zip(manifest.parties, parts, strict=True)
    }
    federation = Rehearsal(
        manifest,
        data,
        policies=dict.fromkeys(manifest.parties, _policy(manifest, ledger)),
        secret=secret,
        ledger_files={p: ledger.file(p) for p in manifest.parties} if ledger else {},
    )
    federation.kept, federation.kept_grams = _kept(manifest, data, secret), dict(grams or {})
    with ledger.held() if ledger else nullcontext():
        return _trained(federation)


def _trained(federation: Rehearsal) -> FittedRun:
    """Simulate the federation and collect its models; closes the ledgers in any case."""
    manifest = federation.manifest
    try:
        simulation = federation.simulate()
        closed = {p: simulation.nodes[p].state for p in manifest.parties}
        if set(federation.outcomes.values()) != {"completed"}:
            reasons = {state.reason for state in closed.values() if state.reason}
            raise RefusedError("the federation did not train: " + "; ".join(sorted(reasons)))
        return FittedRun(
            models={p: model_of(federation.assets(p), closed[p]) for p in manifest.parties},
            privacy={p: _spent(federation.books[p], p, closed[p]) for p in manifest.parties},
            history=closed[ACTIVE].trained.rounds.own_losses,
            grams=_grams(closed),
        )
    finally:
        for book in federation.books.values():
            book.close()
            book.close_file()


def _grams(closed: Mapping[str, Closed]) -> dict[str, Release]:
    """Each passive party's noised X'X; none after descent."""
    rounds = {p: state.trained.rounds for p, state in closed.items() if state.trained is not None}
    found = {p: each.gram for p, each in rounds.items() if isinstance(each, PrivatePassive)}
    return {party: gram for party, gram in found.items() if gram is not None}


def _spent(book: LedgerBook, party: str, closed: Closed) -> Spend:
    assert closed.trained is not None
    noise = closed.trained.setup.plan.noise_of("active" if party == ACTIVE else "passive")
    return Spend(
        spent=book.spent(),
        lifetime_epsilon=book.lifetime_epsilon(),
        delta=book.delta,
        noise_std=noise.noise_std,
        disclosed_rows=noise.disclosed_rows,
    )


def _prepared(ids: Column, X: Matrix, part: Standardised, label: Label | None) -> PreparedData:
    names = tuple(f"x{column}" for column in part.columns)
    constants = zip(names, part.centre.tolist(), part.scale.tolist(), strict=True)
    settings = DataSettings(
        label_column="y" if label else None,
        label_kind=label.kind if label else None,
        label_centre=label.centre if label else 0.0,
        label_scale=label.scale if label else 1.0,
        columns=names,
        rules=tuple(NamedColumn(name=n, centre=c, scale=s) for n, c, s in constants),
        learned=True,
    )
    digest = hashlib.sha256(np.ascontiguousarray(X).data)
    if label is not None:
        digest.update(np.ascontiguousarray(label.values).data)
    return PreparedData(
        ids=(ids,),
        X=X,
        y=label.values if label else None,
        weights=None,
        offset=None,
        column_names=names,
        settings=settings,
        fingerprint=digest.digest(),
    )


def _policy(manifest: RunManifest, ledger: LedgerFolder | None) -> PartyPolicy:
    """The policy of a party: a ledger's cap applies; without a ledger a fit may spend anything."""
    delta = manifest.budget.delta if manifest.budget else 1e-2
    rehearsed = (manifest.budget.epsilon,) if manifest.budget else ()
    return PartyPolicy(
        dataset=ledger.dataset if ledger else "estimator",
        lifetime=Budget(
            epsilon=ledger.epsilon if ledger else 1000.0, delta=ledger.delta if ledger else delta
        ),
        run_epsilon_max=1000.0,
        guarantees=(manifest.guarantee,),
        rows_min=1,
        disclosed_rows_max=10**9,
        learned_constants=True,
        noises=("gaussian", "bounded"),
        pure_slots=ledger.pure_slots if ledger else rehearsed,
    )


def _kept(
    manifest: RunManifest, data: Mapping[str, PreparedData], secret: bytes
) -> dict[str, tuple[KeptAlignment, ...]]:
    """Give every party a kept alignment in which all rows are common."""
    ids = normalise(data[ACTIVE].ids, IDS)
    kept = KeptAlignment(
        ids_digest=ids_digest(ids),
        parties=tuple(sorted(manifest.parties)),
        id_profile_digest=rules_digest(IDS),
        shared_key=hashlib.sha256(b"alignment" + secret).digest(),
        positions=Tensor.smallest(np.arange(len(ids.ids), dtype=np.int64)),
    )
    return dict.fromkeys(manifest.parties, (kept,))
