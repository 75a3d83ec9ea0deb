"""Whether summary.json agrees with the journals beside it.

It owns the digest of a summary and the comparison with the journals. Nothing private is in a
summary, so its digest needs no key. Figures that a local demo computes outside the protocol are in
no journal: only the digest covers them.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from hdpvfl_mq.audit.evidence import Evidence
from hdpvfl_mq.audit.reader import opened_copy
from schemas.ids import PARTY_ROLES

_DOMAIN = b"hdpvfl-mq summary 1\x00"


def summary_digest(summary: dict[str, Any]) -> str:
    """Digest of all fields except the digest itself."""
    fields = {name: value for name, value in summary.items() if name != "digest"}
    return hashlib.sha256(_DOMAIN + json.dumps(fields, sort_keys=True).encode()).hexdigest()


def journal_head(path: Path) -> tuple[int, str]:
    """The number of records in a journal, and the digest of the last one."""
    with opened_copy(path) as connection:
        (row,) = connection.execute("SELECT idx, digest FROM records ORDER BY idx DESC LIMIT 1")
    return int(row[0]) + 1, bytes(row[1]).hex()


def summary_differs(path: Path, evidence: Evidence) -> str:
    """Where a summary contradicts the journals that are shown; empty if nowhere."""
    try:
        summary: dict[str, Any] = json.loads(path.read_text())
        if summary["digest"] != summary_digest(summary):
            return "it does not have the digest that it states"
        wrong = [*_manifest(summary, evidence), *_journals(summary, evidence)]
        wrong += _prices(summary, evidence)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return "it cannot be read"
    return ", ".join(wrong)


def _manifest(summary: dict[str, Any], evidence: Evidence) -> list[str]:
    manifest, plan = evidence.manifest, evidence.plan
    if manifest is None or plan is None:
        return ["there is no plan in the journals"]
    budget = manifest.budget
    expected = {
        "run": manifest.run,
        "guarantee": manifest.guarantee,
        "loss": manifest.loss.name,
        "penalty": manifest.penalty.name,
        "epsilon": budget.epsilon if budget else None,
        "delta": budget.delta if budget else None,
        "seed": manifest.seed,
        "rows_common": plan.rows,
        "rounds": plan.rounds,
    }
    return [name for name, value in expected.items() if name in summary and summary[name] != value]


def _journals(summary: dict[str, Any], evidence: Evidence) -> list[str]:
    wrong = []
    for party, transcript in evidence.transcripts.items():
        if party not in summary["journals"]:
            continue
        count, head = summary["journals"][party]
        digests = [digest.hex() for _, _, digest in transcript.rows[:count]]
        if len(digests) != count or digests[-1] != head:
            wrong.append(f"the journal of {party}")
    return wrong


def _prices(summary: dict[str, Any], evidence: Evidence) -> list[str]:
    plan = evidence.plan
    wrong = []
    for party in summary.get("parties", ()):
        role = next((r for r in PARTY_ROLES if r == party["role"]), None)
        noise = plan.noise_of(role) if plan and role else None
        if noise is not None and party.get("noise_std", noise.noise_std) != noise.noise_std:
            wrong.append(f"noise_std of {party['name']}")
    return wrong
