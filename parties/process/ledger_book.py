"""A party's ledger as its node sees it: one data set, one run.

It owns the translation between releases and ledger entries; it knows no message and no journal.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Sequence

from hdpvfl_mq.machine import Reserve
from hdpvfl_mq.privacy.accountant import Spent
from hdpvfl_mq.privacy.calibration import mu_of
from hdpvfl_mq.privacy.ledger_store import Ledger
from schemas.config import PartyPolicy
from schemas.ids import PartyId, RunId
from schemas.privacy import (
    MU2_UNIT_BITS,
    Cosignature,
    LedgerHead,
    Release,
    ReleaseBooked,
    RunReserved,
)
from schemas.records import LedgerStanding, Remembered


class LedgerBook:
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
        self._ledger, self._policy, self._run = ledger, policy, run
        self._fingerprint = fingerprint.hex()
        self._peers = frozenset(peers)
        ledger.fix_cap(policy.dataset, policy.lifetime)

    def standing(self) -> LedgerStanding:
        """The ledger's head, and what this run may still take under the lifetime cap."""
        books, head = self._ledger.books, self._ledger.head()
        cap = self._policy.lifetime
        units = math.floor(mu_of(cap.epsilon, cap.delta) ** 2 * 2.0**MU2_UNIT_BITS)
        held = books.held(self._policy.dataset).mu2_units
        mine = books.runs.get((self._policy.dataset, self._run))
        if mine is not None:
            held -= mine.held.mu2_units
        return LedgerStanding(
            head=head,
            mu2_units_free=max(0, units - held),
            remembered=tuple(
                Remembered(party=party, head=head, signature=signature)
                for party, (head, signature) in sorted(self._ledger.remembered().items())
                if party in self._peers
            ),
        )

    def remember(self, party: PartyId, head: LedgerHead, signature: bytes) -> None:
        """Keep the newest head of a peer's ledger, beyond this run."""
        self._ledger.remember(party, head, signature)

    def check_restored(self, party: PartyId, head: LedgerHead, signature: bytes) -> None:
        """Stop if this ledger is older than a head a peer co-signed; else keep the signature."""
        self._ledger.check_restored({party: head})
        self._ledger.record(Cosignature(peer=party, head=head, signature=signature))

    def reserve(self, reservation: Reserve) -> None:
        """Set aside what the run may cost; the same again changes nothing."""
        self._ledger.reserve(
            RunReserved(
                dataset=self._policy.dataset,
                run=self._run,
                mu2_units=reservation.mu2_units,
                tau_units=reservation.tau_units,
                exact=reservation.exact,
                fingerprint=self._fingerprint,
            )
        )

    def book(self, releases: Sequence[Release]) -> None:
        """Charge releases, all or none, before any of them leaves."""
        self._ledger.book(
            [
                ReleaseBooked(
                    dataset=self._policy.dataset,
                    run=self._run,
                    event=release.event,
                    digest=hashlib.sha256(release.tensor.data).digest(),
                )
                for release in releases
            ]
        )

    def close(self) -> None:
        """The run is over: what it did not spend is free again."""
        if (self._policy.dataset, self._run) in self._ledger.books.runs:
            self._ledger.close_run(self._policy.dataset, self._run)

    @property
    def delta(self) -> float:
        """The one delta of this data set."""
        return self._policy.lifetime.delta

    def lifetime_epsilon(self) -> float:
        """Epsilon of everything that ever left about this data set."""
        return self._ledger.books.epsilon_spent(self._policy.dataset)

    def spent(self) -> Spent:
        """What this run has spent so far."""
        mine = self._ledger.books.runs.get((self._policy.dataset, self._run))
        return Spent() if mine is None else mine.spent
