"""Parsers for the commands of a federation of long-running services.

It owns their options; join.py and services.py implement them and are imported when called.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from hdpvfl_mq.app import defaults

Adder = Callable[[Any, str, str, Callable[[argparse.Namespace], int]], argparse.ArgumentParser]


def add_federation_commands(commands: Any, add: Adder) -> None:
    """Add these commands to the parser."""
    _add_joining(commands, add)
    _add_running(commands, add)
    _add_scoring(commands, add)


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
    join.add_argument("--proxy", help="HOST:PORT of a SOCKS5 proxy that leads to the broker")
    join.add_argument("--dataset", help="the ledger's name of these people (default: the party's)")
    join.add_argument(
        "--lifetime-epsilon",
        type=float,
        default=defaults.LIFETIME_EPSILON,
        help="cap of all runs ever (default: %(default)g)",
    )
    join.add_argument("--lifetime-delta", type=float, default=defaults.DELTA)
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
        ("page", "print the address of this service's page, for a browser on this machine"),
    ):
        _with_settings(add(commands, name, text, _later("services", name)))
    look = "check everything a party's service needs, and say what to do"
    _with_settings(add(commands, "doctor", look, _later("doctor", "doctor")))
    check = add(
        commands, "check", "find every fault of settings files at once", _later("check", "check")
    )
    check.add_argument(
        "files", type=Path, nargs="+", metavar="FILE", help="settings, policy, manifest"
    )
    for name, text in (
        ("approve", "take part in a proposed run"),
        ("refuse", "take no part in a proposed run"),
        ("stop", "end a run for everybody"),
        ("logs", "what this service has said about one run"),
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
    option("--epsilon", type=float, default=defaults.EPSILON)
    option("--delta", type=float, default=defaults.DELTA)
    option("--loss", default=defaults.LOSS)
    option("--rows-min", type=int, default=1, help="fewest common rows")
    option("--seed", type=int, default=defaults.SEED)
    option("--run", help="its name (default: federation and time)")
    option("--manifest", type=Path, help="a manifest instead of the planner's choices")
    option("--again", metavar="RUN", help="the same run under a new name")
    option("--no-wait", action="store_true", help="propose, and do not follow")


def _add_scoring(commands: Any, add: Adder) -> None:
    predict = add(
        commands,
        "predict",
        "score rows with the models of a run, through the protocol: of 'up', by default those it "
        "held out, or with this party's service (party.toml here, or --settings)",
        _later("scores", "predict"),
    )
    option = predict.add_argument
    option(
        "run",
        nargs="?",
        default=defaults.RUN,
        help="the run that was trained (default: %(default)s)",
    )
    option(
        "--epsilon",
        type=float,
        default=defaults.EPSILON,
        help="price of one noised score (default: %(default)g)",
    )
    option("--delta", type=float, default=defaults.DELTA, help="its delta (default: %(default)s)")
    option("--noised", action="store_true", help="noised scores of private weights")
    option(
        "--exact", action="store_true", help="scores of un-noised weights: infinite in the ledgers"
    )
    option("--rows", type=Path, help="this party's file; of 'up' a folder with every PARTY.csv")
    option("--settings", type=Path, help="the service's file, to score with partners elsewhere")
    option("-o", "--output", type=Path, help="with a service: scores, .csv or .parquet")
    option("--keep", action="store_true", help="with a service: a session open for 'hdpvfl score'")
    option("--coarsen", type=float, default=0.0, help="scores in such steps, in deviations")
    option("--without", action="store_true", help="score also where a partner is away, and say so")
    option("--rows-min", type=int, default=2, help="with a service: fewest common people")
    option("--out", type=Path, default=Path(), help="folder with runs/ and state/ (default: here)")
    score = _with_settings(
        add(commands, "score", "ask an open scoring session for people", _later("scores", "score"))
    )
    score.add_argument("run", help="the session that 'hdpvfl predict --keep' opened")
    score.add_argument("ids", nargs="*", metavar="ID", help="this party's ids; they do not leave")
    score.add_argument("--place", type=int, nargs="*", help="places in the session instead of ids")
    score.add_argument("--end", action="store_true", help="end the session")
