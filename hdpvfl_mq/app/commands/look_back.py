"""The commands that look back at a run: audit, replay, report. Words to functions, nothing more.

It owns their options; what they do is in audit.py, replay.py and report.py,
which are imported when they are called.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

Adder = Callable[[Any, str, str, Callable[[argparse.Namespace], int]], argparse.ArgumentParser]


def add_evidence_commands(commands: Any, add: Adder) -> None:
    """Put the three commands into the parser."""
    audit = _with_run(
        add(commands, "audit", "check a run's journals, without data or secrets", _audit)
    )
    audit.add_argument("--party", action="append", default=[], help="audit only these journals")
    audit.add_argument("--members", type=Path, help="TOML file with the members' public keys")
    audit.add_argument("--ledgers", type=Path, help="folder with <party>/ledger.db")
    replay = _with_run(
        add(commands, "replay", "fold a party's journal again, inside the party", _replay)
    )
    replay.add_argument("--party", required=True, help="whose journal")
    replay.add_argument("--settings", type=Path, help="its settings file (default: the run's)")
    replay.add_argument("--until", type=int, metavar="ROUND", help="stop after that many rounds")
    replay.add_argument("--show", action="store_true", help="print every record")
    replay.add_argument("--diverge", action="store_true", help="tell the first difference")
    report = _with_run(
        add(commands, "report", "write a page about what left a party, for people", _report)
    )
    report.add_argument("--party", action="append", default=[], help="default: every party here")
    report.add_argument("--members", type=Path, help="TOML file with the members' public keys")
    report.add_argument("--ledgers", type=Path, help="folder with <party>/ledger.db")


def _with_run(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    parser.add_argument("run", help="folder of the run, or its name in --runs")
    parser.add_argument("--runs", type=Path, default=Path("runs"), help="default: runs")
    return parser


def _folder(options: argparse.Namespace) -> Path:
    from hdpvfl_mq.audit.reader import run_folder  # noqa: PLC0415 - start-up

    return run_folder(options.run, options.runs)


def _audit(options: argparse.Namespace) -> int:
    from hdpvfl_mq.app.commands.audit import AuditOptions, run_audit  # noqa: PLC0415 - start-up

    return run_audit(
        AuditOptions(
            _folder(options),
            tuple(options.party),
            options.members,
            options.ledgers,
            as_json=options.json,
        )
    )


def _replay(options: argparse.Namespace) -> int:
    from hdpvfl_mq.app.commands.replay import ReplayOptions, replay  # noqa: PLC0415 - start-up

    return replay(
        ReplayOptions(
            _folder(options),
            options.party,
            options.settings,
            options.until,
            show=options.show,
            diverge=options.diverge,
            as_json=options.json,
        )
    )


def _report(options: argparse.Namespace) -> int:
    from hdpvfl_mq.app.commands.audit import AuditOptions  # noqa: PLC0415 - start-up
    from hdpvfl_mq.app.commands.report import report  # noqa: PLC0415 - start-up

    return report(
        AuditOptions(
            _folder(options),
            (),
            options.members,
            options.ledgers,
            as_json=options.json,
        ),
        tuple(options.party),
    )
