"""`hdpvfl audit`: what an outsider can say about a run from its journals.

It owns what the command prints and its exit code; the checks are in hdpvfl_mq/journal.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from hdpvfl_mq.audit.audit import NOT_VERIFIABLE, Verdict, audit, exit_code
from hdpvfl_mq.audit.evidence import Evidence
from hdpvfl_mq.audit.reader import read_evidence
from hdpvfl_mq.audit.scope import scope


@dataclass(frozen=True)
class AuditOptions:
    """What a person may choose."""

    folder: Path
    parties: tuple[str, ...] = ()
    members: Path | None = None
    ledgers: Path | None = None
    as_json: bool = False


def run_audit(options: AuditOptions) -> int:
    """Audit and tell; the exit code says whether anything was found."""
    evidence = gather(options)
    verdicts = audit(evidence)
    if options.as_json:
        print(json.dumps(as_plain(evidence, verdicts)))
    else:
        for text in as_lines(evidence, verdicts):
            print(text)
    return exit_code(verdicts)


def gather(options: AuditOptions) -> Evidence:
    """The evidence; ledgers are looked for next to the runs folder unless named."""
    beside = options.folder.parent.parent / "state"
    ledgers = options.ledgers or (beside if beside.is_dir() else None)
    return read_evidence(
        options.folder, members=options.members, ledgers=ledgers, only=options.parties
    )


def as_plain(evidence: Evidence, verdicts: tuple[Verdict, ...]) -> dict[str, object]:
    """The result for machines."""
    return {
        "run": evidence.run,
        "journals": {p: len(t.rows) for p, t in evidence.transcripts.items()},
        "ledgers": sorted(evidence.ledgers),
        "scope": scope(evidence),
        "checks": [{**asdict(verdict), "passed": verdict.passed} for verdict in verdicts],
        "not_verifiable": list(NOT_VERIFIABLE),
        "exit": exit_code(verdicts),
    }


def as_lines(evidence: Evidence, verdicts: tuple[Verdict, ...]) -> list[str]:
    """The result for people."""
    lines = scope(evidence)
    for verdict in verdicts:
        mark = "ok   " if verdict.passed else "FOUND"
        lines.append(f"{verdict.number:3} {mark} {verdict.title}")
        if not verdict.passed:
            lines.append(f"          {verdict.found}")
    lines.append("Nobody can verify from outside:")
    lines += [f"  - {text}" for text in NOT_VERIFIABLE]
    return lines
