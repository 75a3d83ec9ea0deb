"""Two parties that differ in one row, driven by the same adversary through the production roles.

It owns how both take a step and how their messages are compared; step, ledger and mechanism are
those of production. All messages of the two must be equal except for digests keyed with a secret,
and the difference between their releases must be within what the ledger has booked.
"""

from __future__ import annotations

import hashlib
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from hdpvfl_mq.data.preprocess import PreparedData
from hdpvfl_mq.errors import PeerError, RefusedError
from hdpvfl_mq.machine import Effect, Input, Send
from hdpvfl_mq.methods import plan_run
from hdpvfl_mq.methods.private_model.plan import PrivateModelPlan
from hdpvfl_mq.privacy.ledger_secret import LedgerSecret
from hdpvfl_mq.privacy.ledger_store import Ledger
from hdpvfl_mq.privacy.scored_people import ScoredPeople
from parties import alignment, member
from parties.assets import Assets, TrainedModel
from parties.party import Party
from parties.phases import setup_of, training_of
from parties.process.gram_store import GramStore
from parties.process.ledger_book import LedgerBook
from parties.rounds.private_model import PrivatePassive
from parties.rounds.shares_fit import PrivateActive
from schemas.config import RunManifest
from schemas.messages import Releasing
from schemas.policy import PartyPolicy
from schemas.privacy import MU2_UNIT_BITS, PURE_UNIT_BITS
from schemas.records import (
    Book,
    Charge,
    CheckLedger,
    LedgerRead,
    ReadLedger,
    RememberHead,
    Reserve,
)
from schemas.scoring import ScoreReply
from tests.adversary.neighbours import NAMES, Rows, assets, differing, in_file_order
from tests.adversary.sessions import Answers
from tests.adversary.tap import Leak, Tap, listening

# Digests under a secret of the party: they may differ, and no other field may.
KEYED = {
    "hello": ("dataset_fingerprint", ("ledger", "digest")),
    "agreement": (("ledger", "digest"),),
    "agreed": (("ledger", "digest"),),
    "ledger_head": ("signature", ("head", "digest")),
    "check_ledger": ("signature", ("head", "digest")),
}


# A folder that costs no disk, where the system has one.
_MEMORY = "/dev/shm" if Path("/dev/shm").is_dir() else None

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


@dataclass
class Side:
    """One of two neighbours: its role, its state, its ledger."""

    own: Assets
    book: LedgerBook
    role: Party
    state: Any = None
    epoch: int = 0
    grams: GramStore | None = None  # where runs are repeated

    def kept(self) -> None:
        """Write noised statistics down, as the process does after every turn."""
        training = training_of(self.state) if self.grams is not None else None
        if training is not None and isinstance(training.rounds, PrivatePassive):
            self.grams.keep(training.rounds.gram)

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
    folders: tuple[Path, ...] = ()  # of statistics that runs keep
    files: list[PreparedData] = field(default_factory=list)
    answers: Answers = field(init=False)

    def __post_init__(self) -> None:
        self.answers = Answers(self.policy)

    @contextmanager
    def keeping(self) -> Iterator[None]:
        """Keep what runs leave for later ones, in the party's own store."""
        with tempfile.TemporaryDirectory(prefix="statistics-", dir=_MEMORY) as folder:
            self.folders = (Path(folder, "one"), Path(folder, "two"))
            yield

    def enter(self, manifest: RunManifest, models: tuple[TrainedModel, ...] = ()) -> None:
        """Come up as two processes for this run, over the same ledgers and files as before."""
        if not self.ledgers:
            secret = LedgerSecret(hashlib.sha256(b"ledger").digest())
            self.ledgers = [Ledger(_database(), self.victim, secret) for _ in self.rows]
            for ledger in self.ledgers:
                ledger.people = ScoredPeople(_database(), self.victim, secret)
        self.sides = []
        for number, rows in enumerate(self.rows):
            own = self._assets(number, manifest, rows, models[number] if models else None)
            book = LedgerBook(
                self.ledgers[number], self.policy, manifest.run, own.data.fingerprint, peers=NAMES
            )
            grams = self._grams(number, own)
            if grams is not None and not models:
                own = replace(own, kept_gram=grams.usable())
            role = Party(own)
            self.sides.append(Side(own, book, role, role.initial(), grams=grams))
            book.attach(own, self.sides[-1])  # type: ignore[arg-type]  # its state is read

    def _grams(self, number: int, own: Assets) -> GramStore | None:
        if not self.folders:
            return None
        folder, columns = self.folders[number], own.data.column_names
        return GramStore(folder, own.run, self.policy.dataset, columns)

    def _assets(
        self, number: int, manifest: RunManifest, rows: Rows, model: TrainedModel | None
    ) -> Assets:
        """What a neighbour brings; its file is the same in every run."""
        own, order = assets(self.victim, self.policy, manifest, rows, self.secret)
        if len(self.files) <= number:
            is_active = own.role == "active"
            self.files.append(in_file_order(own.data, rows, order, self.label_kind, is_active))
        one, two = (self.files[number], self.files[0])
        if number:
            self.tap.replaced = int(np.flatnonzero(order == differing(one, two))[0])
        return replace(own, data=one, model=model)

    @property
    def view(self) -> Any:
        """The state as the adversary knows it: every public part is the same in both."""
        return self.sides[0].state

    def give(self, make: Callable[[Side], Input]) -> list[Any]:
        """One move of the adversary to both neighbours, and what they say; Leak if that differs."""
        self.moves += 1
        self.tap.first.clear()
        self.tap.scored = self._disclosable()
        said = []
        self.answers.replaced = self.tap.replaced
        with listening(self.tap), remembered_plans():
            for number, side in enumerate(self.sides):
                self.tap.is_second = bool(number)
                said.append(self._taken(side, make(side)))
                side.kept()
        if self.tap.first:
            raise Leak("only one of two neighbours released anything")
        if said[0] != said[1]:
            raise Leak(f"neighbours say {said[0]} and {said[1]}")
        self._check_booked()
        return said[0]

    def _taken(self, side: Side, given: Input) -> list[Any]:
        """What the step sends, refuses and records, without what a secret keys."""
        before = side.state
        try:
            side.state, effects = side.role.step(side.state, given)
        except PeerError as refused:
            return [f"refused: {refused}"]
        for effect in effects:
            if isinstance(effect, Send) and isinstance(effect.message, ScoreReply):
                self.answers.take(side.own, before, effect.message, is_second=self.tap.is_second)
        said = [public(effect) for effect in effects] + [type(side.state).__name__]
        if side.settled(effects):
            said += self._taken(side, LedgerRead(standing=side.book.standing()))
        for charge in (e for e in effects if isinstance(e, Charge)):
            side.book.charge(charge)()
            said += self._taken(side, side.book.charged())
        return said

    @property
    def booked(self) -> float:
        """mu^2 of everything that ever left, by the ledger."""
        spent = self.ledgers[0].books.spent(self.policy.dataset)
        return float("inf") if spent.exact else spent.mu2_units * 2.0**-MU2_UNIT_BITS

    @property
    def booked_pure(self) -> float:
        """The pure epsilons of everything that ever left, by the ledger."""
        return sum(self.ledgers[0].books.spent(self.policy.dataset).pure) * 2.0**-PURE_UNIT_BITS

    def _check_booked(self) -> None:
        """Each kind of cost against its own booking: neither pays for the other."""
        if self.tap.spent > 0.0:
            self._within("mu^2", self.tap.spent, self.booked)
        if self.tap.pure > 0.0 and not np.isinf(self.booked):
            self._within("the pure epsilon", self.tap.pure, self.booked_pure)

    def _within(self, what: str, told: float, booked: float) -> None:
        self.peak = max(self.peak, told / booked if booked else np.inf)
        if told > booked * (1.0 + 1e-9):
            raise Leak(f"{what} of what left is {told:.6g}, booked are {booked:.6g}")

    def _disclosable(self) -> np.ndarray:
        """Rows whose exact scores the run's plan lets leave, in the order they leave in."""
        setup = setup_of(self.view)
        if setup is None or not isinstance(setup.plan, PrivateModelPlan):
            return np.arange(0)
        plan = setup.plan
        first = min(plan.method.disclosed_rows, plan.rows - plan.method.held_out_rows)
        return np.r_[:first, plan.rows - plan.method.held_out_rows : plan.rows]

    def models(self) -> tuple[TrainedModel, ...]:
        """What the run left to either, to predict with."""
        found = []
        for side in self.sides:
            trained = training_of(side.state)
            assert trained is not None
            rounds = trained.rounds
            fitted = rounds if isinstance(rounds, PrivateActive) else None
            found.append(
                TrainedModel(
                    manifest=trained.manifest,
                    data=side.own.data.settings,
                    rows=trained.setup.plan.rows,
                    dataset=self.policy.dataset,
                    weights=rounds.final_weights,
                    weights_private=isinstance(rounds, PrivatePassive),
                    coefficients=fitted.coefficients if fitted else {},
                    score_regressions=fitted.score_regressions if fitted else {},
                )
            )
        return tuple(found)


def _database() -> sqlite3.Connection:
    return sqlite3.connect(":memory:", isolation_level=None)


def public(effect: Effect) -> Any:
    """An effect without what a secret keys."""
    to, model = (effect.to, effect.message) if isinstance(effect, Send) else ((), effect)
    dumped = model.model_dump()
    if isinstance(model, ScoreReply):  # sealed scores: `Answers` opens and compares them
        dumped["release"]["tensor"] = model.release.tensor.shape
    for place in KEYED.get(model.kind, ()):
        if isinstance(place, str):
            dumped[place] = "keyed"
        else:
            dumped[place[0]] = {**dumped[place[0]], place[1]: "keyed"}
    return to, dumped
