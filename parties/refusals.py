"""How many proposals of an active party were refused: each refusal tells it something.

It owns the count and its limits; proposals.py keeps the runs and the policy sets how many refusals
are answered without the operator. The count follows from what was proposed and answered, never from
rows.
"""

from __future__ import annotations

from collections.abc import Iterable

from parties.run_phases import Asked, KnownRun, Over, Refused
from schemas.ids import PartyId

ASKED_MAX = 64  # proposals of one active party that may wait for an answer


def waiting(runs: Iterable[KnownRun], active: PartyId) -> int:
    """Proposals of one active party that wait for this party's answer."""
    return sum(run.manifest.active_party == active and isinstance(run, Asked) for run in runs)


def refusals(runs: Iterable[KnownRun], active: PartyId) -> int:
    """Refused proposals of one active party since its last run that was completed."""
    count = 0
    for run in runs:  # in the order in which they were proposed
        if run.manifest.active_party != active:
            continue
        if isinstance(run, Refused):
            count += 1
        elif isinstance(run, Over) and run.outcome == "completed":
            count = 0
    return count
