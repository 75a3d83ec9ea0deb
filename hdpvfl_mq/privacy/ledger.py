"""The rules of a party's privacy ledger: how an entry changes the books, and what is refused.

It owns caps, reserves, bookings and the chain of entries; it knows no file and no connection
(ledger_store.py does) and no secret (ledger_secret.py). Every rule is checked before anything
changes.

Heads leave the party, so they must hide the entries: an entry is chained as a commitment, a hash
keyed by the entry's own opening. Whoever has the opening can check the entry; nobody else can test
a guess. Entries of format 1 have no opening and are chained in the clear.

- A cap is fixed per data set before its first reserve. The reserves of all open runs plus the
  spends of closed runs stay within it: a privacy filter, so runs may be chosen adaptively.
- A cap may hold pure slots for bounded releases. The cap on mu^2 is the rest of the budget when
  every slot is full; an empty slot never becomes mu^2, and mu^2 never becomes a slot.
- Nothing is refunded. Closing a run frees only what it never spent.
- An exact disclosure has infinite cost, and the ledger shows that permanently. It needs a reserve
  that names it; the cap still limits the noised releases.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from pydantic import TypeAdapter

from hdpvfl_mq.errors import IntegrityError, RefusedError
from hdpvfl_mq.privacy.accountant import Spent, affordable, epsilon_shown
from hdpvfl_mq.privacy.pure import mu_beside
from hdpvfl_mq.privacy.slots import taken, unused
from schemas.base import INT64_MAX
from schemas.privacy import (
    MU2_UNIT_BITS,
    PURE_UNIT_BITS,
    Budget,
    BudgetsApart,
    CapFixed,
    LedgerEntry,
    LedgerHead,
    PeopleCounted,
    ReleaseBooked,
    RunReserved,
    RunSettled,
    SecretFixed,
    SlotShare,
)

Entry = (
    SecretFixed | CapFixed | BudgetsApart | RunReserved | ReleaseBooked | RunSettled | PeopleCounted
)
EMPTY_LEDGER = LedgerHead(sequence=0, digest=bytes(32))
OPENING_BYTES = 32
_ENTRY: TypeAdapter[Entry] = TypeAdapter(LedgerEntry)
_LINK_DOMAIN = b"hdpvfl-mq ledger 2\x00"
_COMMIT_PERSON = b"hdpvfl ledger 2"


@dataclass(frozen=True, slots=True)
class RunAccount:
    """One run on one data set: its reserve, what it spent, and whether it is closed."""

    reserve: RunReserved
    spent: Spent = field(default_factory=Spent)
    closed: bool = False
    used: tuple[SlotShare, ...] = ()  # of the reserve's shares of pure slots

    @property
    def held(self) -> Spent:
        """The amount counted against the cap on mu^2: the reserve while open, then the spend."""
        if self.closed:
            return self.spent
        return Spent(self.reserve.mu2_units, self.reserve.tau_units, self.spent.exact)

    @property
    def shares_held(self) -> tuple[SlotShare, ...]:
        """The shares counted against the pure slots: reserved while open, then used."""
        return self.used if self.closed else self.reserve.pure


@dataclass
class Books:
    """Caps by data set and run accounts by (data set, run); an entry changes one of them."""

    caps: dict[str, Budget] = field(default_factory=dict)
    runs: dict[tuple[str, str], RunAccount] = field(default_factory=dict)
    # Pairs of data sets that share ids but have separate budgets.
    apart: set[frozenset[str]] = field(default_factory=set)
    secret_check: bytes | None = None  # None: a ledger of format 1
    slots: dict[str, tuple[int, ...]] = field(default_factory=dict)  # pure ones, in units
    people: LedgerHead = EMPTY_LEDGER  # of the account of scored people
    mu2_units_scored: int = 0  # by noised scores, in accounts under secrets that are lost

    def copy(self) -> Books:
        """An independent copy of the books."""
        caps, runs, apart = dict(self.caps), dict(self.runs), set(self.apart)
        scored = self.people, self.mu2_units_scored
        return Books(caps, runs, apart, self.secret_check, dict(self.slots), *scored)

    def spent(self, dataset: str) -> Spent:
        """The spend of all runs on a data set; pure epsilons by slot."""
        runs = list(self._runs_of(dataset))
        used = taken((share for run in runs for share in run.used), len(self.slots[dataset]))
        return _total((run.spent for run in runs), used)

    def held(self, dataset: str) -> Spent:
        """The spend of all runs plus the open reserves; pure epsilons by slot."""
        return _total((run.held for run in self._runs_of(dataset)), self.slots_held(dataset))

    def slots_held(self, dataset: str, *, but: str | None = None) -> tuple[int, ...]:
        """How much of each pure slot is spent or reserved, by all runs except `but`."""
        runs = (run for run in self._runs_of(dataset) if run.reserve.run != but)
        shares = (share for run in runs for share in run.shares_held)
        return taken(shares, len(self.slots[dataset]))

    def epsilon_spent(self, dataset: str) -> float:
        """Epsilon of the spend so far at the data set's delta: progress, not the guarantee."""
        return epsilon_shown(self.spent(dataset), self.caps[dataset].delta)

    def epsilon_left(self, dataset: str, *, mu2_units_scored: int = 0) -> float:
        """Epsilon of the largest run with Gaussian noise that still fits under the cap.

        `mu2_units_scored` is what noised scores have cost one person in the present account.
        """
        cap = self.caps[dataset]
        units = math.floor(
            mu_beside(cap.epsilon, cap.delta, self.slots[dataset]) ** 2 * 2.0**MU2_UNIT_BITS
        )
        scored = self.mu2_units_scored + mu2_units_scored
        free = max(0, units - self.held(dataset).mu2_units - scored)
        return epsilon_shown(Spent(mu2_units=free), cap.delta)

    def check_cap(self, entry: CapFixed) -> None:
        """Refuse another cap after the first run, and slots that alone exceed the budget."""
        if any(self._runs_of(entry.dataset)):
            cap = self.caps[entry.dataset]
            slots = [units * 2.0**-PURE_UNIT_BITS for units in self.slots[entry.dataset]]
            raise RefusedError(
                f"the cap of {entry.dataset} is fixed at epsilon = {cap.epsilon:g}, delta = "
                f"{cap.delta:g}, pure_slots = {slots} since its first run; put these numbers into "
                f"the policy"
            )
        if not affordable(entry.cap, 0, 0, entry.pure_slots):
            raise RefusedError(
                f"policy.pure_slots of {entry.dataset} together exceed its lifetime of epsilon = "
                f"{entry.cap.epsilon:g} at delta = {entry.cap.delta:g}: take smaller or fewer"
            )

    def run_after(self, entry: RunReserved | ReleaseBooked | RunSettled) -> RunAccount:
        """Check an entry of a run and return the account after it."""
        if entry.dataset not in self.caps:
            raise RefusedError(f"fix a cap for {entry.dataset} before anything is reserved")
        run = self.runs.get((entry.dataset, entry.run))
        if isinstance(entry, RunReserved):
            return self._reserved(run, entry)
        if run is None:
            raise RefusedError(f"run {entry.run} has no reserve on {entry.dataset}")
        return (
            _booked(run, entry) if isinstance(entry, ReleaseBooked) else replace(run, closed=True)
        )

    def _reserved(self, run: RunAccount | None, entry: RunReserved) -> RunAccount:
        if run is not None:
            raise RefusedError(f"run {entry.run} has another reserve; use a new run id")
        held, cap = self.held(entry.dataset), self.caps[entry.dataset]
        slots = self.slots[entry.dataset]
        mu2, tau = held.mu2_units + entry.mu2_units, held.tau_units + entry.tau_units
        # Every slot counts in full, used or not, because the slots were fixed with the cap.
        if max(mu2, tau) > INT64_MAX or not affordable(cap, mu2, tau, slots):
            raise RefusedError(
                f"run {entry.run} would take {entry.dataset} above its cap of epsilon = "
                f"{cap.epsilon:g} at delta = {cap.delta:g}; close runs that are over, or ask for "
                f"a smaller epsilon"
            )
        if any(share.slot >= len(slots) for share in entry.pure):
            raise RefusedError(f"{entry.dataset} has {len(slots)} pure slots; name more of them")
        full = zip(
            self.slots_held(entry.dataset), taken(entry.pure, len(slots)), slots, strict=True
        )
        if any(held + more > size for held, more, size in full):
            raise RefusedError(
                f"run {entry.run} would overfill a pure slot of {entry.dataset}: close runs that "
                f"are over, or ask for a smaller epsilon"
            )
        return RunAccount(entry)

    def _runs_of(self, dataset: str) -> Iterator[RunAccount]:
        return (run for (name, _), run in self.runs.items() if name == dataset)


def apply(books: Books, entry: Entry) -> None:
    """Fold one entry into the books, or raise and leave them as they were."""
    if isinstance(entry, SecretFixed):
        # People were hashed under the previous secret: their account starts again from zero.
        books.secret_check, books.people = entry.check, EMPTY_LEDGER
        books.mu2_units_scored += entry.mu2_units_scored
    elif isinstance(entry, BudgetsApart):
        books.apart.add(frozenset((entry.dataset, entry.other)))
    elif isinstance(entry, PeopleCounted):
        if entry.head.sequence <= books.people.sequence:
            raise RefusedError("the account of scored people only grows")
        books.people = entry.head
    elif isinstance(entry, CapFixed):
        books.check_cap(entry)
        books.caps[entry.dataset], books.slots[entry.dataset] = entry.cap, entry.pure_slots
    else:
        books.runs[entry.dataset, entry.run] = books.run_after(entry)


def in_slot(books: Books, entry: Entry) -> Entry:
    """Assign a bounded release to the first unused share of its size; other entries are unchanged.

    If its run has no such share, the entry stays without a slot, and `apply` refuses it.
    """
    if not isinstance(entry, ReleaseBooked) or not entry.event.pure_units:
        return entry
    run = books.runs.get((entry.dataset, entry.run))
    left = [] if run is None else unused(run.reserve.pure, run.used)
    slot = next((share.slot for share in left if share.units == entry.event.pure_units), None)
    return ReleaseBooked(**{**dict(entry), "slot": slot})


def already(books: Books, entry: Entry) -> bool:
    """Whether the books already hold this cap, reserve or closing, so that it changes nothing."""
    if isinstance(entry, SecretFixed):
        return books.secret_check == entry.check
    if isinstance(entry, BudgetsApart):
        return frozenset((entry.dataset, entry.other)) in books.apart
    if isinstance(entry, PeopleCounted):
        return books.people == entry.head
    if isinstance(entry, CapFixed):
        known = books.caps.get(entry.dataset), books.slots.get(entry.dataset)
        return known == (entry.cap, entry.pure_slots)
    run = books.runs.get((entry.dataset, entry.run))
    if isinstance(entry, RunReserved):
        return run is not None and run.reserve == entry
    return isinstance(entry, RunSettled) and run is not None and run.closed


def encode(entry: Entry) -> bytes:
    """The bytes that are stored and hashed."""
    return entry.model_dump_json().encode()


def decode(body: bytes) -> Entry:
    """Read stored bytes; IntegrityError if they do not parse."""
    try:
        return _ENTRY.validate_json(body)
    except ValueError as error:
        raise IntegrityError("a ledger entry cannot be read") from error


def commitment(opening: bytes, body: bytes) -> bytes:
    """Bind an entry and hide it: without the opening these 32 bytes say nothing about it."""
    if len(opening) != OPENING_BYTES:
        raise IntegrityError("the opening of a ledger entry has the wrong length")
    return hashlib.blake2b(body, key=opening, person=_COMMIT_PERSON, digest_size=32).digest()


def extend(head: LedgerHead, body: bytes, opening: bytes | None) -> LedgerHead:
    """Chain one more entry to a head; an entry without an opening follows format 1."""
    sequence = head.sequence + 1
    place = head.digest + sequence.to_bytes(8, "big")
    linked = place + body
    if opening is not None:
        linked = _LINK_DOMAIN + place + commitment(opening, body)
    return LedgerHead(sequence=sequence, digest=hashlib.sha256(linked).digest())


def _booked(run: RunAccount, entry: ReleaseBooked) -> RunAccount:
    spent, reserve = run.spent.plus(entry.event), run.reserve
    if run.closed:
        raise RefusedError(f"run {entry.run} is closed; it releases nothing more")
    if entry.event.mechanism == "exact" and not reserve.exact:
        raise RefusedError(f"the policy does not allow exact values to leave {entry.dataset}")
    if spent.mu2_units > reserve.mu2_units or spent.tau_units > reserve.tau_units:
        raise RefusedError(f"{entry.event.release_id} would exceed the reserve of {entry.run}")
    return replace(run, spent=spent, used=run.used + _share(run, entry))


def _share(run: RunAccount, entry: ReleaseBooked) -> tuple[SlotShare, ...]:
    """The share of a pure slot that a release takes: its run reserved it, and nothing used it."""
    if entry.event.pure_units == 0 and entry.slot is None:
        return ()
    left = unused(run.reserve.pure, run.used)
    if entry.slot is not None and entry.event.pure_units:
        share = SlotShare(slot=entry.slot, units=entry.event.pure_units)
        if share in left:
            return (share,)
    raise RefusedError(f"{entry.event.release_id} has no share of a pure slot in {entry.run}")


def _total(parts: Iterable[Spent], slots: tuple[int, ...]) -> Spent:
    mu2, tau, exact = 0, 0, 0
    for part in parts:
        mu2, tau, exact = mu2 + part.mu2_units, tau + part.tau_units, exact + part.exact
    return Spent(mu2, tau, exact, tuple(sorted(units for units in slots if units)))
