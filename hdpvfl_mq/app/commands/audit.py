"""`hdpvfl audit`: what an outsider can say about a run from its journals.

It owns what the command prints and its exit code; the checks are in hdpvfl_mq/audit.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from hdpvfl_mq.app.lines import say
from hdpvfl_mq.audit.audit import NOT_VERIFIABLE, Verdict, audit, exit_code
from hdpvfl_mq.audit.bundle import MEMBERS, is_bundle, unpacked
from hdpvfl_mq.audit.evidence import Evidence
from hdpvfl_mq.audit.figures import summary_differs
from hdpvfl_mq.audit.reader import read_evidence, read_keys, run_folder
from hdpvfl_mq.audit.scope import scope


@dataclass(frozen=True)
class AuditOptions:
    """Options of `hdpvfl audit`."""

    folder: Path
    parties: tuple[str, ...] = ()
    members: Path | None = None
    ledgers: Path | None = None
    as_json: bool = False


def command(options: argparse.Namespace) -> int:
    """`hdpvfl audit` with parsed options."""
    packed = is_bundle(Path(options.run))
    chosen = AuditOptions(
        Path(options.run) if packed else run_folder(options.run, options.runs),
        tuple(options.party),
        options.members,
        options.ledgers,
        as_json=options.json,
    )
    return audit_bundle(chosen) if packed else run_audit(chosen)


def run_audit(options: AuditOptions) -> int:
    """Audit a run and print the result; the exit code says whether anything was found."""
    evidence = gather(options)
    verdicts = audit(evidence)
    summary = options.folder / "summary.json"
    differs = summary_differs(summary, evidence) if summary.exists() else ""
    if options.as_json:
        print(json.dumps({**as_plain(evidence, verdicts), "summary_differs": differs}))
    else:
        for text in as_lines(evidence, verdicts):
            say(text)
        if summary.exists():
            say(f"summary.json: {differs or 'says what the journals say'}")
    return exit_code(verdicts) or int(bool(differs))


def audit_bundle(options: AuditOptions) -> int:
    """Audit the run in a bundle, using only the bundle and the keys that are named."""
    with unpacked(options.folder, options.members) as bundle:
        index, signers = bundle.index, ", ".join(bundle.signed_by) or "nobody"
        members = options.members or bundle.folder / MEMBERS
        if not options.as_json:
            say(f"bundle made {index.made_at} by version {index.version}, signed by {signers}")
            for text in key_lines(members, named=options.members is not None):
                say(text)
        inside = replace(options, folder=bundle.folder, members=members, ledgers=bundle.folder)
        return run_audit(inside)


def key_lines(members: Path, *, named: bool) -> list[str]:
    """Lines that say whose keys the audit trusts; a bundle's keys prove nothing until compared."""
    if named:
        return [f"keys of {members}"]
    lines = ["keys as the bundle states them; compare with each party, or give --members FILE:"]
    keys = read_keys(members.parent, members)
    return lines + [f"  {party}: {key.verify_key.hex()}" for party, key in keys.items()]


def gather(options: AuditOptions) -> Evidence:
    """Read the evidence; look for ledgers next to the runs folder unless they are named."""
    ledgers = options.ledgers or ledgers_beside(options.folder)
    return read_evidence(
        options.folder, members=options.members, ledgers=ledgers, only=options.parties
    )


def ledgers_beside(folder: Path) -> Path | None:
    """The state folder next to the folder that holds a run's, if there is one."""
    state = folder.parent.parent / "state"
    return state if state.is_dir() else None


def as_plain(evidence: Evidence, verdicts: tuple[Verdict, ...]) -> dict[str, object]:
    """The result as JSON values."""
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
    """The result as lines of text."""
    lines = scope(evidence)
    for verdict in verdicts:
        mark = "ok   " if verdict.passed else "FOUND"
        lines.append(f"{verdict.number:3} {mark} {verdict.title}")
        if not verdict.passed:
            lines.append(f"          {verdict.found}")
    lines.append("Nobody can verify from outside:")
    lines += [f"  - {text}" for text in NOT_VERIFIABLE]
    return lines
