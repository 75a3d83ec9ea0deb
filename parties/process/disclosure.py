"""How many rows one training will disclose, and how many all trainings on a data set have
disclosed.

It owns the count and its comparison with the policy's limit.
"""

from __future__ import annotations

from collections import Counter

from hdpvfl_mq.errors import RefusedError
from hdpvfl_mq.node.node import Node
from hdpvfl_mq.privacy.ledger_store import Ledger
from parties.assets import Assets
from parties.phases import setup_of
from schemas.ids import RunId
from schemas.policy import PartyPolicy
from schemas.privacy import ReleaseBooked, RunReserved, RunSettled


def disclosing(own: Assets, node: Node) -> int:
    """How many rows the training that asks for a reserve will disclose."""
    setup = setup_of(node.state)
    if setup is None or setup.plan.manifest.method.payer != "rows":
        return 0  # the account of scored people counts what a session discloses
    return sum(noise.disclosed_rows for noise in setup.plan.releases_of(own.role).values())


def check_limit(ledger: Ledger, policy: PartyPolicy, rows: int) -> None:
    """RefusedError if disclosing this many more rows would exceed the policy's limit."""
    before, most = disclosed(ledger, policy.dataset), policy.disclosed_rows_max
    if rows and before + rows > most:
        raise RefusedError(
            f"policy.disclosed_rows_max is {most}: this run would disclose {rows} rows, and "
            f"{before} are disclosed already or may be by runs that are not over; raise it to "
            "disclose so many, or ask for fewer"
        )


def disclosed(ledger: Ledger, dataset: str) -> int:
    """How many rows trainings on this data set have disclosed, or may while they are open.

    A row counts in every run.
    """
    reserved, booked = Counter[RunId](), Counter[RunId]()
    for _, entry in ledger.entries():
        match entry:
            case RunReserved() if entry.dataset == dataset:
                reserved[entry.run] = entry.disclosed_rows
            case ReleaseBooked() if entry.dataset == dataset:
                booked[entry.run] += entry.event.disclosed_rows
            case RunSettled() if entry.dataset == dataset:
                reserved[entry.run] = 0
    return (reserved | booked).total()  # the larger of both for each run
