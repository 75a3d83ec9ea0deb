"""Parsers for commands that need no service: plan, ledger, ids.

It owns their options; plan.py, ledger.py and ids.py implement them and are imported when called.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hdpvfl_mq.app import defaults
from hdpvfl_mq.app.parsing import add_budget, add_command, later


def add_offline_commands(commands: Any) -> None:
    """Add these commands to the parser."""
    _add_plan(commands)
    _add_ledger(commands)
    _add_ids(commands)


def _add_plan(commands: Any) -> None:
    plan = add_command(
        commands,
        "plan",
        "show what a budget buys, from public quantities only",
        later("plan", "command"),
        examples=("hdpvfl plan --rows 100000 --passives 3 --epsilon 1",),
    )
    plan.add_argument("--rows", type=int, required=True, help="common rows you expect")
    plan.add_argument(
        "--passives", type=int, default=1, help="number of passive parties (default: 1)"
    )
    add_budget(
        plan,
        epsilon="budget of one run (default: %(default)g)",
        delta="delta of that budget, at most 1 / rows (default: %(default)s)",
    )
    plan.add_argument("--loss", default=defaults.LOSS, help="loss function (default: %(default)s)")
    plan.add_argument("--write", type=Path, metavar="FILE", help="write the manifest of such a run")
    plan.add_argument("--active", default="active", help="with --write: the active party")
    plan.add_argument(
        "--with", dest="partners", help="with --write: passive parties, separated by commas"
    )
    plan.add_argument("--run", default="run-1", help="with --write: the name of the run")
    plan.add_argument(
        "--lifetime", type=float, help="epsilon of a party's cap (default: ten times --epsilon)"
    )


def _add_ledger(commands: Any) -> None:
    ledger = add_command(
        commands,
        "ledger",
        "show, verify or export what a party has spent",
        later("ledger", "command"),
        examples=(
            "hdpvfl ledger show state/shop/ledger.db",
            "hdpvfl ledger export state/shop/ledger.db --run spring-20270101-120000",
        ),
    )
    ledger.add_argument(
        "what",
        choices=("show", "verify", "scored", "export", "new-secret"),
        help="show what is spent and left, verify the chain of entries, count scored people, "
        "export every entry as JSON lines, or make a new secret after the old one was lost",
    )
    ledger.add_argument("file", type=Path, help="the ledger, such as state/active/ledger.db")
    ledger.add_argument("--run", help="with export: open only the entries of this run")


def _add_ids(commands: Any) -> None:
    ids = add_command(
        commands,
        "ids",
        "show what the id rules make of this party's ids",
        later("ids", "command"),
        examples=("hdpvfl ids check party.toml",),
    )
    ids.add_argument("what", choices=("check",), help="apply the rules to the data file")
    ids.add_argument("settings", type=Path, help="settings file, such as party.toml")
    ids.add_argument("--rows", type=int, default=20, help="rows to show (default: 20)")
