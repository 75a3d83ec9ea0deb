"""The ledger under reserves, releases, crashes at any point, duplicates, old copies, two openers.

What has really left is kept by the test. It is never more than the ledger says, and after the
journal is folded again it is equal.
"""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from hdpvfl_mq.errors import IntegrityError, OperatorError, RefusedError
from hdpvfl_mq.privacy.accountant import Spent, affordable, fold
from hdpvfl_mq.privacy.ledger_secret import LedgerSecret
from hdpvfl_mq.privacy.ledger_store import Ledger
from schemas.privacy import (
    Budget,
    Cosignature,
    LedgerEntry,
    LedgerHead,
    ReleaseBooked,
    RunReserved,
    SlotShare,
    SpendEvent,
)

SECRET = LedgerSecret(bytes(32))
CAP = Budget(epsilon=1.0, delta=0.01)
UNIT = 2**33  # the cap is some 36 of these, 27 beside the slots
SLOTS = (2**38, 2**37)
PURE = 2**36  # every bounded release costs this: four fit the first slot, two the second
NAMES = st.sampled_from(["rows", "other"])
# Where the node dies: inside the booking, before its journal commits, or before it sends.
FAULTS = ("none", "book", "journal", "send")


class Crash(BaseException):
    """The process dies here: nothing after this line runs, not even an except clause."""


class LedgerMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.path = self.folder / "ledger.db"
        self.backup = self.folder / "backup.db"
        self.runs: dict[tuple[str, str], int] = {}
        self.journal: list[ReleaseBooked] = []  # what the node would book again after a crash
        self.sent: dict[tuple[str, str], ReleaseBooked] = {}
        self.peer_head: LedgerHead | None = None
        self.ledger = self.opened()
        for dataset in ("rows", "other"):
            self.ledger.fix_cap(dataset, CAP, SLOTS)

    def opened(self) -> Ledger:
        ledger = Ledger.open(self.path, "bank", SECRET)
        # The process may die here, the machine does not: the disk need not be waited for.
        ledger._db.execute("PRAGMA synchronous = OFF")
        return ledger

    def teardown(self) -> None:
        self.ledger.verify()
        self.ledger.close_file()
        shutil.rmtree(self.folder)

    def die(self) -> None:
        """Lose everything that is not on disk, start again, fold the journal, send what is due."""
        self.ledger._db.close()
        self.ledger = self.opened()
        if self.peer_head is not None:
            self.ledger.check_restored({"shop": self.peer_head})
        for release in self.journal:
            self.ledger.book([release])
            self.leave(release)

    def leave(self, release: ReleaseBooked) -> None:
        self.sent[release.dataset, release.event.release_id] = release

    @rule(
        dataset=NAMES,
        units=st.integers(0, 30),
        shares=st.lists(st.integers(0, len(SLOTS) - 1), max_size=4),
    )
    def reserve(self, dataset: str, units: int, shares: list[int]) -> None:
        run = f"run-{len(self.runs)}"
        held = self.ledger.books.held(dataset)
        filled = self.ledger.books.slots_held(dataset)
        entry = RunReserved(
            dataset=dataset,
            run=run,
            mu2_units=units * UNIT,
            tau_units=units,
            exact=False,
            fingerprint="",
            pure=tuple(SlotShare(slot=slot, units=PURE) for slot in shares),
        )
        fits = affordable(CAP, held.mu2_units + units * UNIT, held.tau_units + units, SLOTS)
        fits = fits and all(
            filled[slot] + shares.count(slot) * PURE <= size for slot, size in enumerate(SLOTS)
        )
        if fits:
            self.ledger.reserve(entry)
            self.ledger.reserve(entry)
            self.runs[dataset, run] = 0
        else:
            with pytest.raises(RefusedError):
                self.ledger.reserve(entry)

    def releases(self, data: st.DataObject, count: int) -> list[ReleaseBooked]:
        dataset, run = data.draw(st.sampled_from(sorted(self.runs)))
        made = []
        for _ in range(count):
            number = self.runs[dataset, run]
            self.runs[dataset, run] += 1
            bounded = data.draw(st.booleans())
            event = SpendEvent(
                release_id=f"{run}/bank/score/{number}",
                round=number,
                mechanism="piecewise" if bounded else "lattice_gaussian",
                mu2_units=0 if bounded else data.draw(st.integers(0, 6)) * UNIT,
                tau_units=0 if bounded else data.draw(st.integers(0, 2)),
                pure_units=PURE if bounded else 0,
            )
            made.append(ReleaseBooked(dataset=dataset, run=run, event=event, digest=b"d" * 32))
        return made

    @precondition(lambda self: self.runs)
    @rule(data=st.data(), count=st.integers(1, 3), fault=st.sampled_from(FAULTS))
    def release(self, data: st.DataObject, count: int, fault: str) -> None:
        made = self.releases(data, count)
        before = self.ledger.head()
        if fault == "book":
            self.crash_inside(made, data.draw(st.integers(0, count)))
            assert self.ledger.head() == before
            return
        try:
            self.ledger.book(made)
        except RefusedError:
            assert self.ledger.head() == before
            return
        if fault == "journal":
            self.die()
            self.ledger.book(made)  # the step runs again from the same inputs
        self.journal.extend(made)
        if fault == "send":
            self.die()
        for release in made:
            self.leave(release)

    def crash_inside(self, made: list[ReleaseBooked], after: int) -> None:
        insert, done = self.ledger._insert, 0

        def dying(head: LedgerHead, entry: LedgerEntry) -> LedgerHead:
            nonlocal done
            if done == after:
                raise Crash
            done += 1
            return insert(head, entry)

        self.ledger._insert = dying
        try:
            self.ledger.book([*made, *made])  # the copies make room for a crash after the last
        except (Crash, RefusedError):
            self.die()

    @precondition(lambda self: self.runs)
    @rule(data=st.data())
    def close_run(self, data: st.DataObject) -> None:
        dataset, run = data.draw(st.sampled_from(sorted(self.runs)))
        spent = self.ledger.books.spent(dataset)
        self.ledger.close_run(dataset, run)
        assert self.ledger.books.spent(dataset) == spent

    @precondition(lambda self: self.journal)
    @rule(data=st.data())
    def duplicate(self, data: st.DataObject) -> None:
        release = data.draw(st.sampled_from(self.journal))
        before = self.ledger.head()
        self.ledger.book([release])
        other = ReleaseBooked(
            dataset=release.dataset, run=release.run, event=release.event, digest=b"x" * 32
        )
        with pytest.raises(IntegrityError):
            self.ledger.book([other])
        assert self.ledger.head() == before

    @rule()
    def back_up(self) -> None:
        self.ledger.close_file()
        shutil.copy(self.path, self.backup)
        self.ledger = self.opened()

    @rule()
    def cosign(self) -> None:
        self.peer_head = self.ledger.head()
        self.ledger.record(Cosignature(peer="shop", head=self.peer_head, signature=bytes(64)))

    @precondition(lambda self: self.backup.exists() and self.peer_head is not None)
    @rule()
    def restore_an_old_copy(self) -> None:
        self.ledger.close_file()
        newest = self.folder / "newest.db"
        shutil.copy(self.path, newest)
        shutil.copy(self.backup, self.path)
        old = self.opened()
        assert self.peer_head is not None
        if old.head().sequence < self.peer_head.sequence:
            with pytest.raises(IntegrityError):
                old.check_restored({"shop": self.peer_head})
        else:
            old.check_restored({"shop": self.peer_head})
        old.close_file()
        shutil.copy(newest, self.path)
        self.ledger = self.opened()

    @rule()
    def open_twice(self) -> None:
        with pytest.raises(OperatorError):
            Ledger.open(self.path, "bank", SECRET)

    @rule()
    def restart(self) -> None:
        self.die()

    @invariant()
    def what_left_is_what_the_ledger_says(self) -> None:
        for dataset in ("rows", "other"):
            left = fold(r.event for r in self.sent.values() if r.dataset == dataset)
            booked: Spent = self.ledger.books.spent(dataset)
            assert replace(left, pure=()) == replace(booked, pure=())
            assert sum(left.pure) == sum(booked.pure)  # by release here, by slot there
            held = self.ledger.books.held(dataset)
            assert booked.mu2_units <= held.mu2_units
            assert sum(booked.pure) <= sum(held.pure)
            filled = self.ledger.books.slots_held(dataset)
            assert all(taken <= size for taken, size in zip(filled, SLOTS, strict=True))
            # The promise is that of the whole pair, whatever has been used of it.
            assert affordable(CAP, held.mu2_units, held.tau_units, SLOTS)


LedgerMachine.TestCase.settings = settings(max_examples=25, stateful_step_count=30, deadline=None)
TestLedger = LedgerMachine.TestCase


@pytest.mark.slow
# hypothesis makes the base class while the tests run.
class TestLedgerLong(LedgerMachine.TestCase):  # type: ignore[misc, valid-type, name-defined]  # see above
    settings = settings(max_examples=1000, stateful_step_count=60, deadline=None)
