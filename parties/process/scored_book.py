"""One run's queries of scores in the account of scored people, as its node sees them.

It owns the limits of a query and what the ledger must remember of it; ledger_book.py has the
releases. It knows no message and no file.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from hdpvfl_mq.node.node import Node
from hdpvfl_mq.node.ports import Write
from hdpvfl_mq.privacy.ledger_heads import ACCOUNT
from hdpvfl_mq.privacy.ledger_store import Ledger
from hdpvfl_mq.privacy.pure import pure_units_of
from hdpvfl_mq.privacy.score_limits import Asked, Limits
from hdpvfl_mq.privacy.scored_people import ScoredPeople
from parties.assets import Assets
from parties.process.lifetime import below, cap_units
from parties.process.scored_query import asked_of
from schemas.ids import RunId
from schemas.policy import PartyPolicy
from schemas.privacy import PeopleScored
from schemas.records import Charge, Charged, StepRecord


@dataclass(frozen=True)
class _Scored:
    own: Assets
    node: Node


class ScoredBook:
    """The account's entries of one run."""

    def __init__(self, ledger: Ledger, policy: PartyPolicy, run: RunId) -> None:
        self._ledger, self._policy, self._run = ledger, policy, run
        self._slots = tuple(pure_units_of(epsilon) for epsilon in policy.pure_slots)
        self._scored_by: _Scored | None = None
        self._granted: PeopleScored | None = None  # the query charged last by this process
        self._replayed: Charge | None = None  # of the journal, without its answer so far

    def attach(self, own: Assets, node: Node) -> None:
        """Find the people at a query's places in this node's state; refuse an older account."""
        self._scored_by = _Scored(own, node)
        seen = self._ledger.remembered().get(ACCOUNT)
        if seen is not None:
            self._ledger.scored_people().check_restored(seen[0])

    def charge(self, charge: Charge) -> Write:
        """Charge one query to the people it asks for; durable when the result has returned."""
        people = self._ledger.scored_people()
        self._granted = people.charge(self._asked(charge), self._limits())
        return self._remembering(people)

    def charged(self) -> Charged:
        """What the account grants of the query just charged, or of this run's last one."""
        people = self._ledger.scored_people()
        entry = self._granted or people.last(self._run)
        assert entry is not None  # the previous step charged it
        return Charged(
            query=entry.query, refused=entry.refused, reason=entry.reason, head=people.head
        )

    def charge_again(self, record: StepRecord) -> None:
        """Count a query of a journal, durably, if account and ledger lost it with the power."""
        charge, charged = self._replayed, record.input
        if isinstance(charged, Charged) and charge is not None:
            people, limits = self._ledger.scored_people(), self._limits()
            asked = self._asked(charge)
            if people.charge_again(asked, limits, charged.refused, charged.reason):
                self._remembering(people)()
        for effect in record.effects:
            if isinstance(effect, Charge):
                self._replayed = effect

    def _remembering(self, people: ScoredPeople) -> Write:
        untold, synced = people.take_untold(), people.synced
        return partial(self._ledger.remember_scored, people.head, untold, synced)

    def _asked(self, charge: Charge) -> Asked:
        party = self._scored_by
        assert party is not None  # only a scoring session charges
        return asked_of(self._run, party.own, party.node.state, charge)

    def _limits(self) -> Limits:
        policy, left = self._policy, max(0, below(self._cap()) - self._held())
        return Limits(policy.queries_max, policy.models_max, left)

    def _cap(self) -> int:
        return cap_units(self._policy, self._slots)

    def _held(self) -> int:
        """The mu^2 that every row of the data set may have paid."""
        books = self._ledger.books
        return books.held(self._policy.dataset).mu2_units + books.mu2_units_scored
