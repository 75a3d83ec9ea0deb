"""Two parties that differ in one row, driven by the same adversary through the production roles.

It owns how both take a step and how what left is compared: step, ledger and mechanism are the ones
that run. Everything the two say must be equal but for digests that a secret keys, and what their
releases tell apart must be within what the ledger has booked.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import numpy as np
from nacl.signing import SigningKey

from hdpvfl_mq.data.preprocess import PreparedData
from hdpvfl_mq.errors import PeerError, RefusedError
from hdpvfl_mq.machine import Effect, Input, Send
from hdpvfl_mq.methods import plan_run
from hdpvfl_mq.privacy.ledger_secret import LedgerSecret
from hdpvfl_mq.privacy.ledger_store import Ledger
from hdpvfl_mq.psi import normalise, rules_digest
from parties import alignment, member
from parties.assets import Assets, TrainedModel, ids_digest
from parties.common_rows import in_shared_order
from parties.party import Party
from parties.phases import training_of
from parties.process.ledger_book import LedgerBook
from schemas.alignment import KeptAlignment
from schemas.config import PartyPolicy, RunManifest
from schemas.data import DataSettings
from schemas.ids import COORDINATOR
from schemas.messages import Releasing
from schemas.privacy import MU2_UNIT
from schemas.records import (
    Book,
    CheckLedger,
    LedgerRead,
    ReadLedger,
    RememberHead,
    Reserve,
)
from schemas.tensor import Tensor
from tests.adversary.tap import Leak, Tap, listening

NAMES = ("bank", "shop", "telco", COORDINATOR)
# Digests under a secret of the party: they may differ, and no other field may.
KEYED = {
    "hello": ("dataset_fingerprint", ("ledger", "digest")),
    "agreement": (("ledger", "digest"),),
    "agreed": (("ledger", "digest"),),
    "ledger_head": ("signature", ("head", "digest")),
    "check_ledger": ("signature", ("head", "digest")),
}


_planned = cache(plan_run)  # planning noise takes longer than a run; a plan is a value


@contextmanager
def remembered_plans() -> Iterator[None]:
    """Plan the same run over the same number of rows once."""
    rooms = (alignment, member)
    for room in rooms:
        room.__dict__["plan_run"] = _planned
    try:
        yield
    finally:
        for room in rooms:
            room.__dict__["plan_run"] = plan_run


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


@dataclass
class Side:
    """One of two neighbours: its role, its state, its ledger."""

    own: Assets
    book: LedgerBook
    role: Party
    state: Any = None
    epoch: int = 0

    def settled(self, effects: tuple[Effect, ...]) -> bool:
        """Book what the step says, before anything leaves; whether the ledger is to be read."""
        leaving = [e.message.release for e in effects if is_release(e)]
        leaving += [e.release for e in effects if isinstance(e, Book)]
        for effect in effects:
            match effect:
                case Reserve():
                    with suppress(RefusedError):  # as the node does: the ledger is read next
                        self.book.reserve(effect)
                case RememberHead(party=party, head=head, signature=signature):
                    self.book.remember(party, head, signature)
                case CheckLedger(party=party, head=head, signature=signature):
                    self.book.check_restored(party, head, signature)
        if leaving:
            self.book.book(leaving)
        return any(isinstance(e, ReadLedger) for e in effects)


def is_release(effect: Effect) -> bool:
    return isinstance(effect, Send) and isinstance(effect.message, Releasing)


@dataclass
class Pair:
    """Both neighbours in one run after the other, and what they have told apart so far."""

    victim: str
    policy: PartyPolicy
    rows: tuple[Rows, Rows]  # of the two neighbours
    label_kind: str = "binary"
    secret: bytes = bytes(range(32))
    tap: Tap = field(default_factory=Tap)
    sides: list[Side] = field(default_factory=list)
    ledgers: list[Ledger] = field(default_factory=list)
    moves: int = 0
    peak: float = 0.0  # the largest share of what was booked that the releases have told apart

    def enter(self, manifest: RunManifest, models: tuple[TrainedModel, ...] = ()) -> None:
        """Come up as two processes for this run, over the same ledgers as before."""
        if not self.ledgers:
            secret = LedgerSecret(hashlib.sha256(b"ledger").digest())
            self.ledgers = [
                Ledger(sqlite3.connect(":memory:", isolation_level=None), self.victim, secret)
                for _ in self.rows
            ]
        self.sides = []
        for number, rows in enumerate(self.rows):
            own = assets(self, manifest, rows, models[number] if models else None)
            book = LedgerBook(
                self.ledgers[number], self.policy, manifest.run, own.data.fingerprint, peers=NAMES
            )
            role = Party(own)
            self.sides.append(Side(own, book, role, role.initial()))

    @property
    def view(self) -> Any:
        """The state as the adversary knows it: every public part is the same in both."""
        return self.sides[0].state

    def give(self, make: Callable[[Side], Input]) -> list[Any]:
        """One move of the adversary to both neighbours, and what they say; Leak if that differs."""
        self.moves += 1
        self.tap.first.clear()
        said = []
        with listening(self.tap), remembered_plans():
            for number, side in enumerate(self.sides):
                self.tap.is_second = bool(number)
                said.append(self._taken(side, make(side)))
        if self.tap.first:
            raise Leak("only one of two neighbours released anything")
        if said[0] != said[1]:
            raise Leak(f"neighbours say {said[0]} and {said[1]}")
        self._check_booked()
        return said[0]

    def _taken(self, side: Side, given: Input) -> list[Any]:
        """What the step sends, refuses and records, without what a secret keys."""
        try:
            side.state, effects = side.role.step(side.state, given)
        except PeerError as refused:
            return [f"refused: {refused}"]
        said = [public(effect) for effect in effects] + [type(side.state).__name__]
        if side.settled(effects):
            said += self._taken(side, LedgerRead(standing=side.book.standing()))
        return said

    @property
    def booked(self) -> float:
        """mu^2 of everything that ever left, by the ledger."""
        spent = self.ledgers[0].books.spent(self.policy.dataset)
        return float("inf") if spent.exact else spent.mu2_units * MU2_UNIT

    def _check_booked(self) -> None:
        if self.tap.spent == 0.0:
            return
        booked = self.booked
        self.peak = max(self.peak, self.tap.spent / booked if booked else np.inf)
        if self.tap.spent > booked * (1.0 + 1e-9):
            raise Leak(f"mu^2 of what left is {self.tap.spent:.6g}, booked are {booked:.6g}")

    def models(self) -> tuple[TrainedModel, ...]:
        """What the run left to either, to predict with."""
        found = []
        for side in self.sides:
            trained = training_of(side.state)
            assert trained is not None
            found.append(
                TrainedModel(
                    manifest=trained.manifest,
                    data=side.own.data.settings,
                    rows=trained.setup.plan.rows,
                    dataset=self.policy.dataset,
                    weights=trained.rounds.final_weights,
                )
            )
        return tuple(found)


def assets(
    pair: Pair, manifest: RunManifest, rows: Rows, model: TrainedModel | None = None
) -> Assets:
    """What one neighbour brings: an alignment with all peers is kept, so a run starts at once."""
    count, is_active = len(rows.X), pair.victim == manifest.active_party
    rules = manifest.alignment.ids
    ids = normalise((np.arange(count),), rules)
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
        party=pair.victim,
        role="active" if is_active else "passive",
        run=manifest.run,
        policy=pair.policy,
        data=blank,
        ids=ids,
        id_rules=rules,
        secret=hashlib.sha256(pair.secret + manifest.run.encode()).digest(),
        salt=bytes(16),
        signing_key=signing_key(pair.victim),
        verify_keys={name: signing_key(name).verify_key for name in NAMES},
        numeric_profile="adversary",
        kept=(kept,),
        model=model,
    )
    _, order = in_shared_order(own, manifest, np.arange(count))
    return replace(own, data=in_file_order(blank, rows, order, pair.label_kind, is_active))


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


def public(effect: Effect) -> Any:
    """An effect without what a secret keys."""
    to, model = (effect.to, effect.message) if isinstance(effect, Send) else ((), effect)
    dumped = model.model_dump()
    for place in KEYED.get(model.kind, ()):
        if isinstance(place, str):
            dumped[place] = "keyed"
        else:
            dumped[place[0]] = {**dumped[place[0]], place[1]: "keyed"}
    return to, dumped
