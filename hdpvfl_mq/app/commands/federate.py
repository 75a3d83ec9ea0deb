"""The commands of a standing federation: words to functions, nothing more.

It owns their options; what they do is in join.py and services.py, imported when they are called.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

Adder = Callable[[Any, str, str, Callable[[argparse.Namespace], int]], argparse.ArgumentParser]


def add_federation_commands(commands: Any, add: Adder) -> None:
    """Put them into the parser."""
    _add_joining(commands, add)
    _add_running(commands, add)


def _later(module: str, name: str) -> Callable[[argparse.Namespace], int]:
    def call(options: argparse.Namespace) -> int:
        found = getattr(import_module(f"hdpvfl_mq.app.commands.{module}"), name)
        return int(found(options))

    return call


def _with_settings(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    parser.add_argument(
        "--settings", type=Path, help="the service's file (default: party.toml or broker.toml)"
    )
    return parser


def _add_joining(commands: Any, add: Adder) -> None:
    init = add(commands, "init", "make a federation, at its broker", _later("join", "init"))
    init.add_argument("name", help="of the federation, for instance spring")
    init.add_argument("--bind", default="tcp://0.0.0.0:7700", help="where the broker listens")
    init.add_argument("--address", help="HOST:PORT where members reach it (default: as --bind)")
    invite = _with_settings(
        add(commands, "invite", "print one line that lets one party join", _later("join", "invite"))
    )
    invite.add_argument("party", help="the name it will have")
    invite.add_argument("--role", choices=("active", "passive"), default="passive")
    invite.add_argument("--hours", type=float, default=72.0, help="how long the line is valid")
    invite.add_argument("--federation", help="which one, where the broker hosts several")
    join = add(commands, "join", "join a federation with an invitation", _later("join", "join"))
    join.add_argument("line", help="what 'hdpvfl invite' printed")
    join.add_argument("--data", type=Path, required=True, help="this party's file of rows")
    join.add_argument("--id", required=True, help="its id column")
    join.add_argument("--label", help="its label column; the active party only")
    join.add_argument("--dataset", help="the ledger's name of these people (default: the party's)")
    join.add_argument("--lifetime-epsilon", type=float, default=4.0, help="cap of all runs ever")
    join.add_argument("--lifetime-delta", type=float, default=1e-5)
    confirm = _with_settings(
        add(commands, "confirm", "pin a member's keys, by its words", _later("join", "confirm"))
    )
    confirm.add_argument("party")
    confirm.add_argument("words", nargs=3, help="as the other side reads them")
    remove = _with_settings(add(commands, "remove", "forget a member", _later("join", "remove")))
    remove.add_argument("party")
    remove.add_argument("--federation", help="at a broker that hosts several")


def _add_running(commands: Any, add: Adder) -> None:
    for name, text in (
        ("status", "who is connected, what waits for whom, what is spent and left"),
        ("runs", "every run this service knows"),
        ("requests", "proposed runs that wait for this operator"),
    ):
        _with_settings(add(commands, name, text, _later("services", name)))
    look = "check everything a party's service needs, and say what to do"
    _with_settings(add(commands, "doctor", look, _later("doctor", "doctor")))
    for name, text in (
        ("approve", "take part in a proposed run"),
        ("refuse", "take no part in a proposed run"),
        ("stop", "end a run for everybody"),
    ):
        parser = _with_settings(add(commands, name, text, _later("services", name)))
        parser.add_argument("run")
        if name == "refuse":
            parser.add_argument("--reason", required=True, help="the others are told")
    train = _with_settings(
        add(
            commands,
            "train",
            "propose a run to the members and follow it",
            _later("services", "train"),
        )
    )
    option = train.add_argument
    option("--with", dest="partners", help="passive members, by commas (default: all)")
    option("--epsilon", type=float, default=1.0)
    option("--delta", type=float, default=1e-5)
    option("--loss", default="logistic")
    option("--rows-min", type=int, default=1, help="fewest common rows")
    option("--seed", type=int, default=0)
    option("--run", help="its name (default: federation and time)")
    option("--manifest", type=Path, help="a manifest instead of the planner's choices")
    option("--again", metavar="RUN", help="the same run under a new name")
    option("--no-wait", action="store_true", help="propose, and do not follow")
