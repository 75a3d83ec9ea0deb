"""Parsers for the commands that examine a past run: audit, replay, report, evidence.

It owns their options; audit.py, replay.py, report.py and evidence.py implement them and are
imported when called.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from hdpvfl_mq.app import defaults
from hdpvfl_mq.app.parsing import add_command, later


def add_evidence_commands(commands: Any) -> None:
    """Add the four commands to the parser."""
    _add_audit(commands)
    _add_replay(commands)
    _add_report(commands)
    _add_evidence(commands)


def _add_audit(commands: Any) -> None:
    audit = _with_run(
        add_command(
            commands,
            "audit",
            "check a run's journals, without data or secrets",
            later("audit", "command"),
            examples=(
                "hdpvfl audit",
                "hdpvfl audit evidence.zip --members members.toml",
                "hdpvfl audit spring-20270101-120000 --party shop --json",
            ),
        ),
        other=", or a bundle that 'hdpvfl evidence' made",
    )
    _with_parties(audit, "audit only this party's journal; repeat it for more")
    _with_members(audit)
    _with_ledgers(audit)


def _add_replay(commands: Any) -> None:
    replay = _with_run(
        add_command(
            commands,
            "replay",
            "recompute a party's journal from its data, on its own machine",
            later("replay", "command"),
            examples=(
                "hdpvfl replay --party shop",
                "hdpvfl replay spring-20270101-120000 --party shop --diverge",
            ),
        )
    )
    replay.add_argument("--party", required=True, help="whose journal")
    replay.add_argument("--settings", type=Path, help="its settings file (default: the run's)")
    replay.add_argument("--until", type=int, metavar="ROUND", help="stop after that many rounds")
    replay.add_argument("--show", action="store_true", help="print every record")
    replay.add_argument("--diverge", action="store_true", help="show the first difference")


def _add_report(commands: Any) -> None:
    report = _with_run(
        add_command(
            commands,
            "report",
            "write a page for people about what left a party",
            later("report", "command"),
            examples=(
                "hdpvfl report",
                "hdpvfl report spring-20270101-120000 --party shop",
            ),
        )
    )
    _with_parties(report, "only this party; repeat it for more (default: all parties here)")
    _with_members(report)
    _with_ledgers(report)


def _add_evidence(commands: Any) -> None:
    evidence = _with_run(
        add_command(
            commands,
            "evidence",
            "put the evidence of a run into one signed file",
            later("evidence", "command"),
            examples=(
                "hdpvfl evidence",
                "hdpvfl evidence spring-20270101-120000 -o for-audit.zip",
            ),
        )
    )
    evidence.add_argument(
        "-o", "--out", type=Path, help="file to write (default: RUN-evidence.zip)"
    )
    _with_parties(evidence, "only this party; repeat it for more (default: all parties here)")
    _with_ledgers(evidence)


def _with_parties(parser: argparse.ArgumentParser, text: str) -> None:
    parser.add_argument("--party", action="append", default=[], help=text)


def _with_members(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--members", type=Path, help="file with the members' public keys, such as members.toml"
    )


def _with_ledgers(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--ledgers", type=Path, help="folder with <party>/ledger.db")


def _with_run(parser: argparse.ArgumentParser, *, other: str = "") -> argparse.ArgumentParser:
    parser.add_argument(
        "run",
        nargs="?",
        default=defaults.RUN,
        help=f"folder of the run, or its name in --runs{other} (default: %(default)s)",
    )
    parser.add_argument(
        "--runs", type=Path, default=Path("runs"), help="folder of runs (default: runs)"
    )
    return parser
