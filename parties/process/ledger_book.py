"""A party's ledger as its node sees it: one data set, one run.

It owns the conversion between releases and ledger entries; ledger_file.py opens the files. It knows
no message and no journal.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from hdpvfl_mq.errors import RefusedError
from hdpvfl_mq.machine import Reserve
from hdpvfl_mq.node.ports import Write
from hdpvfl_mq.privacy.accountant import Spent
from hdpvfl_mq.privacy.ledger import RunAccount
from hdpvfl_mq.privacy.ledger_sketch import sketch
from hdpvfl_mq.privacy.ledger_store import Ledger
from hdpvfl_mq.privacy.slots import placed
from parties.assets import Assets
from parties.process.disclosure import check_limit, disclosing
from parties.process.lifetime import below
from parties.process.scored_book import ScoredBook
from schemas.ids import PartyId, RunId
from schemas.policy import PartyPolicy
from schemas.privacy import (
    Cosignature,
    LedgerHead,
    Release,
    ReleaseBooked,
    RunReserved,
    SlotShare,
)
from schemas.records import LedgerStanding, Remembered


def recognise(ledger: Ledger, own: Assets) -> None:
    """Refuse rows whose ids another data set has, unless the policy allows it; remember them."""
    ledger.recognise(
        own.policy.dataset,
        own.data.fingerprint,
        lambda secret: sketch(own.ids.ids, secret),
        apart_from=own.policy.budget_apart_from,
    )


def _is_keyed(release: Release) -> bool:
    """Whether a payload has no noise, so that only a keyed digest hides it."""
    return release.event.mechanism in ("exact", "disclosed")


class LedgerBook(ScoredBook):
    """The ledger entries of one run of one data set."""

    def __init__(
        self,
        ledger: Ledger,
        policy: PartyPolicy,
        run: RunId,
        fingerprint: bytes,
        *,
        peers: Iterable[PartyId] = (),
    ) -> None:
        super().__init__(ledger, policy, run)
        self._unkeyed = fingerprint
        self._peers = frozenset(peers)
        self.refusal = ""  # why a reserve was refused; names only numbers of the policy and plan
        ledger.fix_cap(policy.dataset, policy.lifetime, self._slots)

    def standing(self) -> LedgerStanding:
        """The ledger's head, and how much this run may still spend under the lifetime cap.

        Peers co-sign this head, so in a run it covers the account of scored people as it is now.
        """
        if self._scored_by is not None:
            self._ledger.count_people()
        return LedgerStanding(
            head=self._ledger.head(),
            mu2_units_free=self._free(),
            is_reserved=self._mine() is not None,
            slots_free=self._slots_free(),
            remembered=tuple(
                Remembered(party=party, head=head, signature=signature)
                for party, (head, signature) in sorted(self._ledger.remembered().items())
                if party in self._peers
            ),
        )

    def heads(self) -> tuple[LedgerHead, ...]:
        """The head of the ledger and, if anybody was scored, that of the account beside it."""
        people = self._ledger.known_people()
        return (self._ledger.head(), *(() if people is None else (people.head,)))

    def has_heads(self, heads: Sequence[LedgerHead]) -> bool:
        """Whether ledger and account have had these heads."""
        head, *scored = heads
        people = self._ledger.known_people()
        is_counted = not scored or (people is not None and people.has_head(scored[0]))
        return self._ledger.has_head(head) and is_counted

    def _free(self) -> int:
        """How much of the cap on mu^2 is left to this run, for the row that has paid the most."""
        held, people = self._held(), self._ledger.known_people()
        mine = self._mine()
        if mine is not None:
            held -= mine.held.mu2_units
        scored, cap = 0 if people is None else people.mu2_units_most(), self._cap()
        return max(0, (below(cap) if scored else cap) - held - scored)

    def _slots_free(self) -> tuple[int, ...]:
        held = self._ledger.books.slots_held(self._policy.dataset, but=self._run)
        return tuple(size - taken for size, taken in zip(self._slots, held, strict=True))

    def remember(self, party: PartyId, head: LedgerHead, signature: bytes) -> None:
        """Store the newest head of a peer's ledger, beyond this run."""
        self._ledger.remember(party, head, signature)

    def check_restored(self, party: PartyId, head: LedgerHead, signature: bytes) -> None:
        """Stop if this ledger is older than a head a peer co-signed; else store the signature."""
        self._ledger.check_restored({party: head})
        self._ledger.record(Cosignature(peer=party, head=head, signature=signature))

    def reserve(self, reservation: Reserve) -> None:
        """Reserve what the run may cost; `refusal` says to the operator why that is refused."""
        try:
            self._reserve(reservation)
        except RefusedError as refused:
            self.refusal = str(refused)
            raise

    def _reserve(self, reservation: Reserve) -> None:
        # Repeating one changes nothing. The cost of noised scores is added to that of trainings.
        if self._mine() is None and reservation.mu2_units > self._free():
            raise RefusedError(f"the lifetime of {self._policy.dataset} leaves less than this run")
        party = self._scored_by
        rows = 0 if party is None else disclosing(party.own, party.node)
        if self._mine() is None:
            check_limit(self._ledger, self._policy, rows)
        self._ledger.reserve(
            RunReserved(
                dataset=self._policy.dataset,
                run=self._run,
                mu2_units=reservation.mu2_units,
                tau_units=reservation.tau_units,
                exact=reservation.exact,
                fingerprint=self._fingerprint(),
                pure=self._shares(reservation.pure_units),
                disclosed_rows=rows,
            )
        )

    def _shares(self, wanted: tuple[int, ...]) -> tuple[SlotShare, ...]:
        """A slot for each bounded release; a run that has reserved before keeps its slots."""
        mine = self._mine()
        if mine is not None and sorted(s.units for s in mine.reserve.pure) == sorted(wanted):
            return mine.reserve.pure
        shares = placed(wanted, self._slots_free())
        if shares is None:
            raise RefusedError(
                f"policy.pure_slots of {self._policy.dataset} have no room for this run's bounded "
                f"noise; see 'hdpvfl ledger show'"
            )
        return shares

    def _fingerprint(self) -> str:
        """The hash of the rows for the ledger; keyed, so that nobody can test guesses about a row.

        A run that an earlier version reserved keeps its unkeyed hash.
        """
        mine = self._mine()
        if mine is not None and mine.reserve.fingerprint == self._unkeyed.hex():
            return mine.reserve.fingerprint
        return self._ledger.secret.fingerprint(self._unkeyed)

    def book(self, releases: Sequence[Release]) -> None:
        """Charge releases, all or none, before any of them leaves."""
        self._ledger.book([self._booked(release) for release in releases])

    def booking(self, releases: Sequence[Release]) -> Write:
        """Check and enter releases like `book`; the function returned makes them durable."""
        return self._ledger.booking([self._booked(release) for release in releases])

    def book_again(self, releases: Sequence[Release]) -> None:
        """Book those releases of a journal that the ledger does not have, after a crash.

        IntegrityError if it has one with another payload: that was sent, and this journal was put
        back since. Keyed digests are not compared: an earlier secret may have keyed them.
        """
        dataset = self._policy.dataset
        lacking = [
            release
            for release in releases
            if not _is_keyed(release) or not self._ledger.has_booked(dataset, release.release_id)
        ]
        if lacking:
            self.book(lacking)

    def _booked(self, release: Release) -> ReleaseBooked:
        """The entry of a release."""
        keyed = _is_keyed(release)
        if keyed:
            digest = self._ledger.secret.payload(release.release_id, release.tensor.data)
        else:
            digest = release.tensor.digest  # the transcript has hashed these bytes
        return ReleaseBooked(
            dataset=self._policy.dataset,
            run=self._run,
            event=release.event,
            digest=digest,
            keyed=keyed,
        )

    def _mine(self) -> RunAccount | None:
        return self._ledger.books.runs.get((self._policy.dataset, self._run))

    def close(self) -> None:
        """The run is over: release the part of its reserve that it did not spend."""
        if self._mine() is not None:
            self._ledger.close_run(self._policy.dataset, self._run)

    def close_file(self) -> None:
        """Close the file and release its lock."""
        self._ledger.close_file()

    @property
    def delta(self) -> float:
        """The one delta of this data set."""
        return self._policy.lifetime.delta

    def lifetime_epsilon(self) -> float:
        """Epsilon of everything ever released about this data set."""
        return self._ledger.books.epsilon_spent(self._policy.dataset)

    def spent(self) -> Spent:
        """What this run has spent so far."""
        mine = self._mine()
        return Spent() if mine is None else mine.spent
