"""Pure slots in the ledger: a pair of caps fixed beforehand, never a filter between the two."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from hdpvfl_mq.errors import IntegrityError, RefusedError
from hdpvfl_mq.privacy import ledger as rules
from hdpvfl_mq.privacy.accountant import Spent, affordable, epsilon_shown
from hdpvfl_mq.privacy.calibration import mu_of
from hdpvfl_mq.privacy.ledger import Books, apply, decode, encode
from hdpvfl_mq.privacy.ledger_secret import LedgerSecret
from hdpvfl_mq.privacy.ledger_store import Ledger
from hdpvfl_mq.privacy.pure import delta_with_pure, mu_beside, pure_units_of
from hdpvfl_mq.privacy.slots import placed, taken
from schemas.privacy import (
    MU2_UNIT_BITS,
    Budget,
    CapFixed,
    ReleaseBooked,
    RunReserved,
    RunSettled,
    SlotShare,
    SpendEvent,
)

SECRET = LedgerSecret(b"s" * 32)
CAP = Budget(epsilon=2.0, delta=0.01)
HALF = pure_units_of(0.5)
SLOTS = (HALF, HALF)


def mu2_left(slots: tuple[int, ...] = SLOTS) -> int:
    return math.floor(mu_beside(CAP.epsilon, CAP.delta, slots) ** 2 * 2**MU2_UNIT_BITS)


def reserve(run: str, *shares: tuple[int, int], mu2: int = 0) -> RunReserved:
    return RunReserved(
        dataset="rows",
        run=run,
        mu2_units=mu2,
        tau_units=0,
        exact=False,
        fingerprint="",
        pure=tuple(SlotShare(slot=slot, units=units) for slot, units in shares),
    )


def booking(run: str, units: int, number: int = 0, *, slot: int | None = None) -> ReleaseBooked:
    event = SpendEvent(
        release_id=f"{run}/bank/residual/{number}",
        round=number,
        mechanism="randomised_response",
        mu2_units=0,
        tau_units=0,
        pure_units=units,
    )
    return ReleaseBooked(dataset="rows", run=run, event=event, digest=b"d" * 32, slot=slot)


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    opened = Ledger.open(tmp_path / "ledger.db", "bank", SECRET)
    opened.fix_cap("rows", CAP, SLOTS)
    return opened


def test_the_promise_is_the_whole_pair(ledger: Ledger) -> None:
    """mu^2 gets what is left when every slot is full: no more, and no less."""
    assert mu2_left() < mu2_left(())
    with pytest.raises(RefusedError, match="above its cap"):
        ledger.reserve(reserve("greedy", mu2=mu2_left() + 2**12))
    ledger.reserve(reserve("all", (0, HALF), (1, HALF), mu2=mu2_left()))
    held = ledger.books.held("rows")
    assert held == Spent(mu2_left(), 0, 0, SLOTS)
    assert affordable(CAP, held.mu2_units, 0, held.pure)
    assert epsilon_shown(held, CAP.delta) == pytest.approx(CAP.epsilon, rel=1e-6)


def test_unused_slots_never_become_mu2(ledger: Ledger) -> None:
    """Nobody has touched a slot; the Gaussian budget of a ledger without slots is still refused."""
    without = math.floor(mu_of(CAP.epsilon, CAP.delta) ** 2 * 2**MU2_UNIT_BITS)
    with pytest.raises(RefusedError, match="above its cap"):
        ledger.reserve(reserve("r", mu2=without))


def test_unused_mu2_never_becomes_a_slot(ledger: Ledger) -> None:
    with pytest.raises(RefusedError, match="overfill"):
        ledger.reserve(reserve("r", (0, HALF + 1)))
    with pytest.raises(RefusedError, match="2 pure slots"):
        ledger.reserve(reserve("r", (2, 1)))


def largest_second(first: int, *, pure: bool) -> tuple[float, tuple[int, ...]]:
    """What a running filter would allow after one pure release: all of the rest, pure or not."""
    if not pure:
        return mu_beside(CAP.epsilon, CAP.delta, (first,)), ()
    low, high = 0, pure_units_of(2 * CAP.epsilon)
    while high - low > 1:
        middle = (low + high) // 2
        fits = delta_with_pure(CAP.epsilon, 0.0, (first, middle)) <= CAP.delta
        low, high = (middle, high) if fits else (low, middle)
    return 0.0, (low,)


def test_a_running_filter_between_pure_and_gaussian_breaks_its_promise() -> None:
    """Section 8's attack in numbers: look at the first answer, then choose the currency.

    Either choice alone is within the cap. Chosen by the answer, they exceed it by a third.
    """
    first = pure_units_of(0.1)
    likely = 1 / (1 + math.exp(-0.1))
    total = 0.0
    for chance, loss in ((likely, 0.1), (1 - likely, -0.1)):
        choices = [largest_second(first, pure=pure) for pure in (True, False)]
        total += chance * max(
            float(delta_with_pure(CAP.epsilon - loss, mu, pures)) for mu, pures in choices
        )
    assert total > 1.3 * CAP.delta


def test_the_ledger_is_no_such_filter(ledger: Ledger) -> None:
    """Gaussian runs are refused while a filter on what is spent so far would let them pass."""
    run, step = 0, mu2_left(()) // 40
    while True:
        spent = ledger.books.held("rows")
        filter_allows = affordable(CAP, spent.mu2_units + step, 0, spent.pure)
        try:
            ledger.reserve(reserve(f"g{run}", mu2=step))
        except RefusedError:
            break
        run += 1
    assert filter_allows
    assert spent.mu2_units <= mu2_left() < spent.mu2_units + step
    # The slots are still whole, because the promise holds with all of both.
    ledger.reserve(reserve("p", (0, HALF), (1, HALF)))
    held = ledger.books.held("rows")
    assert affordable(CAP, held.mu2_units, 0, held.pure)


def test_mechanisms_share_a_slot_up_to_its_size(ledger: Ledger) -> None:
    third = HALF // 3
    ledger.reserve(reserve("r", (0, third), (0, third), (0, third)))
    with pytest.raises(RefusedError, match="overfill"):
        ledger.reserve(reserve("s", (0, HALF - 3 * third + 1)))
    for number in range(3):
        ledger.book([booking("r", third, number)])
    with pytest.raises(RefusedError, match="no share"):
        ledger.book([booking("r", third, 3)])
    assert ledger.books.spent("rows").pure == (3 * third,)


def test_a_slot_is_not_used_twice(ledger: Ledger) -> None:
    ledger.reserve(reserve("r", (0, HALF)))
    ledger.book([booking("r", HALF)])
    before = ledger.head()
    ledger.book([booking("r", HALF)])  # the same release again: stored bytes, free
    assert ledger.head() == before
    with pytest.raises(RefusedError, match="no share"):
        ledger.book([booking("r", HALF, 1)])
    ledger.close_run("rows", "r")
    with pytest.raises(RefusedError, match="overfill"):
        ledger.reserve(reserve("s", (0, HALF)))  # what is spent stays spent
    ledger.reserve(reserve("s", (1, HALF)))


def test_closing_frees_only_what_was_never_spent(ledger: Ledger) -> None:
    ledger.reserve(reserve("r", (0, HALF), (1, HALF)))
    ledger.book([booking("r", HALF)])
    assert ledger.books.slots_held("rows") == SLOTS
    ledger.close_run("rows", "r")
    assert ledger.books.slots_held("rows") == (HALF, 0)


def test_releases_of_one_transaction_take_different_slots(ledger: Ledger) -> None:
    ledger.reserve(reserve("r", (0, HALF), (1, HALF)))
    ledger.book([booking("r", HALF, 0)])
    # After a crash the journal books the first again, together with the next.
    ledger.book([booking("r", HALF, 0), booking("r", HALF, 1)])
    assert ledger.books.spent("rows").pure == SLOTS
    ledger.verify()


def test_a_bounded_release_needs_a_share_of_its_own_size(ledger: Ledger) -> None:
    ledger.reserve(reserve("r", (0, HALF), mu2=1000))
    with pytest.raises(RefusedError, match="no share"):
        ledger.book([booking("r", HALF - 1)])
    with pytest.raises(RefusedError):
        ledger.book([booking("other", HALF)])


def test_the_pair_is_fixed_with_the_first_run(ledger: Ledger) -> None:
    ledger.fix_cap("rows", CAP, (HALF,))  # nothing reserved yet: the operator may think again
    ledger.reserve(reserve("r", (0, HALF)))
    ledger.fix_cap("rows", CAP, (HALF,))
    for slots in ((), (HALF, HALF), (HALF + 1,)):
        with pytest.raises(RefusedError, match="since its first run"):
            ledger.fix_cap("rows", CAP, slots)


def test_slots_beyond_the_lifetime_are_refused(tmp_path: Path) -> None:
    ledger = Ledger.open(tmp_path / "ledger.db", "bank", SECRET)
    with pytest.raises(RefusedError, match="together exceed"):
        ledger.fix_cap("rows", CAP, (pure_units_of(1.5),) * 2)


def test_a_ledger_from_before_the_slots_keeps_its_meaning() -> None:
    body = b'{"kind":"cap","dataset":"rows","cap":{"epsilon":2.0,"delta":0.01}}'
    books = Books()
    entry = decode(body)
    apply(books, entry)
    assert entry == CapFixed(dataset="rows", cap=CAP)
    assert books.slots["rows"] == ()
    without = math.floor(mu_of(CAP.epsilon, CAP.delta) ** 2 * 2**MU2_UNIT_BITS)
    apply(books, reserve("r", mu2=without))
    old = (
        b'{"kind":"spend","dataset":"rows","run":"r","event":{"release_id":"r/bank/share/0",'
        b'"round":0,"mechanism":"lattice_gaussian","mu2_units":7,"tau_units":0},"digest":"'
        + b"A" * 43
        + b'="}'
    )
    apply(books, decode(old))
    assert books.spent("rows") == Spent(7, 0)


@pytest.mark.parametrize(
    "change",
    [
        {"pure_units": 0},  # a bounded release for nothing
        {"mu2_units": 5},  # in two currencies
        {"tau_units": 5},
        {"mechanism": "lattice_gaussian"},  # a pure price on a Gaussian release
        {"mechanism": "exact"},
        {"mechanism": "laplace"},  # unknown: refused, never skipped
    ],
)
def test_an_event_has_one_currency(change: dict[str, object]) -> None:
    good = dict(booking("r", HALF).event)
    with pytest.raises(ValidationError):
        SpendEvent.model_validate({**good, **change})


def test_a_chain_with_a_slot_taken_twice_does_not_fold(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Planted fault: a ledger that forgets which shares are used; every honest reader notices."""
    ledger.reserve(reserve("r", (0, HALF)))
    with monkeypatch.context() as faulty:
        faulty.setattr(rules, "unused", lambda shares, used: list(shares))
        ledger.book([booking("r", HALF, 0), booking("r", HALF, 1)])
    ledger.close_file()
    with pytest.raises(IntegrityError, match="breaks the ledger's rules"):
        Ledger.open(tmp_path / "ledger.db", "bank", SECRET)


def test_a_chain_that_turned_a_slot_into_mu2_does_not_fold(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Planted fault: a cap that counts only the slots in use."""
    with monkeypatch.context() as faulty:
        faulty.setattr(rules, "affordable", lambda cap, mu2, tau, _: affordable(cap, mu2, tau))
        ledger.reserve(reserve("r", mu2=mu2_left() + 2**30))
    ledger.close_file()
    with pytest.raises(IntegrityError, match="breaks the ledger's rules"):
        Ledger.open(tmp_path / "ledger.db", "bank", SECRET)


def test_entries_survive_their_encoding() -> None:
    for entry in (
        CapFixed(dataset="rows", cap=CAP, pure_slots=SLOTS),
        reserve("r", (0, HALF), (1, 3)),
        booking("r", HALF, slot=1),
        RunSettled(dataset="rows", run="r"),
    ):
        assert decode(encode(entry)) == entry


@settings(max_examples=80, deadline=None)
@given(
    wanted=st.lists(st.integers(1, 10), max_size=8), free=st.lists(st.integers(0, 12), max_size=5)
)
def test_placing_never_overfills_and_never_splits(wanted: list[int], free: list[int]) -> None:
    shares = placed(wanted, free)
    if shares is None:
        assert sum(wanted) > 0
        return
    assert sorted(share.units for share in shares) == sorted(wanted)
    filled = taken(shares, len(free))
    assert all(used <= room for used, room in zip(filled, free, strict=True))
