"""Echoes: a party repeats what it heard from one sender to another, so that a lie is noticed.

It owns when two hashes are compared. The coordinator sends the same orders (plans of rounds, who is
left out) to all parties; each share repeats their hash to the active party, which compares it with
its own. The active party sends the same residuals to all passive parties; each report repeats their
hash to the coordinator, keyed so that it can compare hashes and nothing else. A difference ends the
run; hdpvfl_mq/audit/checks_echo.py finds in the journals whose fault it is.
"""

from __future__ import annotations

from types import MappingProxyType

from hdpvfl_mq.wire.echoes import orders_start, with_order, with_residual
from parties.phases import Training, changed
from schemas.ids import PartyId
from schemas.messages import Resume, RoundPlan, RoundReport
from schemas.privacy import Release

ORDERS_KEPT = 64  # hashes of the last orders, to which a share may refer


def heard_residual(state: Training, release: Release) -> Training:
    """Add one residual, sent or received, to the hash."""
    residuals = with_residual(state.residuals, release)
    return changed(state, residuals=residuals, residual_count=state.residual_count + 1)


def heard_order(state: Training, order: RoundPlan | Resume) -> Training:
    """Add one order of the coordinator to the hash."""
    last = state.orders[-1] if state.orders else orders_start(state.terms)
    orders = (*state.orders, with_order(last, order))[-ORDERS_KEPT:]
    return changed(state, orders=orders, order_count=state.order_count + 1)


def heard_echo(state: Training, party: PartyId, count: int, digest: bytes) -> Training:
    """Store which orders a peer has heard; it may have heard more than this party."""
    return changed(state, echoes=MappingProxyType({**state.echoes, party: (count, digest)}))


def contradicted(state: Training) -> PartyId | None:
    """A party that has heard other orders, compared over those both parties have heard."""
    return next((party for party in sorted(state.echoes) if contradicts(state, party)), None)


def contradicts(state: Training, party: PartyId) -> bool:
    """Whether a party has heard orders that differ from this party's."""
    count, digest = state.echoes[party]
    first = state.order_count - len(state.orders) + 1  # number of the oldest hash kept
    return first <= count <= state.order_count and state.orders[count - first] != digest


def report(state: Training, *, last: bool) -> RoundReport:
    """This party's round, with the hash of all residuals it has sent or received."""
    return RoundReport(
        rounds_done=state.round,
        last=last,
        residuals=state.residual_count,
        residuals_digest=state.residuals,
    )
