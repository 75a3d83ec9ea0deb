"""Options of `hdpvfl up` that do not fit the ledgers of earlier runs in the same folder.

It owns the comparison and its sentence. A ledger fixes the cap of a data set with the first run.
The options state a part of it, so the remedy is an option, not a line of a policy.
"""

from __future__ import annotations

from pathlib import Path

from hdpvfl_mq.app.commands.ledger import opened_copy
from hdpvfl_mq.errors import RefusedError
from schemas.ids import PartyId
from schemas.privacy import Budget


def refuse_other_delta(
    state: Path, parties: tuple[PartyId, ...], dataset: str, budget: Budget | None
) -> None:
    """Refuse a delta that differs from the one these parties' ledgers have for a data set."""
    if budget is None:
        return
    for party in parties:
        path = state / party / "ledger.db"
        if not path.exists():
            continue
        with opened_copy(path) as ledger:
            has_run = any(name == dataset for name, _ in ledger.books.runs)
            fixed = ledger.books.caps[dataset].delta if has_run else budget.delta
        if fixed != budget.delta:
            raise RefusedError(
                f"{state.parent} has earlier runs on {dataset} with delta = {fixed:g}, which its "
                f"ledgers keep: use --delta {fixed:g}, or another folder with --out FOLDER"
            )
