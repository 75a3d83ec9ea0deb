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
    init = add(
        commands, "init", "make a federation, on the broker's machine", _later("join", "init")
    )
    init.add_argument("name", help="name of the federation, such as spring")
    init.add_argument(
        "--bind",
        default="tcp://0.0.0.0:7700",
        help="where the broker listens (default: %(default)s)",
    )
    init.add_argument(
        "--address", help="HOST:PORT where members reach the broker (default: that of --bind)"
    )
    invite = _with_settings(
        add(commands, "invite", "print one line that lets one party join", _later("join", "invite"))
    )
    invite.add_argument("party", help="the name the new member will have")
    invite.add_argument(
        "--role", choices=("active", "passive"), default="passive", help="default: %(default)s"
    )
    invite.add_argument(
        "--hours",
        type=float,
        default=72.0,
        help="hours the line stays valid (default: %(default)g)",
    )
    invite.add_argument("--federation", help="which federation, if the broker hosts several")
    join = add(commands, "join", "join a federation with an invitation", _later("join", "join"))
    join.add_argument("line", help="the line that 'hdpvfl invite' printed")
    join.add_argument("--data", type=Path, required=True, help="this party's file of rows")
    join.add_argument("--id", required=True, help="the id column of that file")
    join.add_argument("--label", help="the label column; the active party only")
    join.add_argument("--separator", default=",", help="separator of cells in CSV (default: ,)")
    join.add_argument(
        "--decimal", default=".", choices=(".", ","), help="the decimal sign in CSV (default: .)"
    )
    join.add_argument("--encoding", default="utf-8", help="encoding of CSV (default: utf-8)")
    join.add_argument("--proxy", help="HOST:PORT of a SOCKS5 proxy that leads to the broker")
    join.add_argument(
        "--dataset", help="name of this data set in the ledger (default: the party's name)"
    )
    join.add_argument(
        "--lifetime-epsilon",
        type=float,
        default=defaults.LIFETIME_EPSILON,
        help="cap on epsilon over all runs, for ever (default: %(default)g)",
    )
    join.add_argument(
        "--lifetime-delta",
        type=float,
        default=defaults.DELTA,
        help="delta of that cap (default: %(default)s)",
    )
    confirm = _with_settings(
        add(
            commands,
            "confirm",
            "pin a member's keys after comparing its three words",
            _later("join", "confirm"),
        )
    )
    confirm.add_argument("party", help="the other member")
    confirm.add_argument(
        "words", nargs=3, help="three words, as the other member's operator reads them out"
    )
    remove = _with_settings(add(commands, "remove", "remove a member", _later("join", "remove")))
    remove.add_argument("party", help="the member to remove")
    remove.add_argument("--federation", help="which federation, if the broker hosts several")


def _add_running(commands: Any, add: Adder) -> None:
    for name, text in (
        ("status", "show who is connected, what waits for whom, what is spent and left"),
        ("runs", "list every run this service knows"),
        ("requests", "list proposed runs that wait for this operator's answer"),
        ("page", "print the address of this service's page, for a browser on this machine"),
    ):
        _with_settings(add(commands, name, text, _later("services", name)))
    look = "check everything a service needs, and say what to do"
    _with_settings(add(commands, "doctor", look, _later("doctor", "doctor")))
    check = add(
        commands, "check", "find every fault of settings files at once", _later("check", "check")
    )
    check.add_argument(
        "files", type=Path, nargs="+", metavar="FILE", help="settings, policy, manifest"
    )
    for name, text in (
        ("approve", "accept a proposed run"),
        ("refuse", "decline a proposed run"),
        ("stop", "end a run for everybody"),
        ("logs", "print this service's log of one run"),
    ):
        parser = _with_settings(add(commands, name, text, _later("services", name)))
        parser.add_argument("run", help="name of the run; see 'hdpvfl runs'")
        if name == "refuse":
            parser.add_argument("--reason", required=True, help="why; the other parties see it")
    train = _with_settings(
        add(
            commands,
            "train",
            "propose a run to the members and follow it",
            _later("services", "train"),
        )
    )
    option = train.add_argument
    option("--with", dest="partners", help="passive members, separated by commas (default: all)")
    option(
        "--epsilon",
        type=float,
        default=defaults.EPSILON,
        help="privacy budget of every party (default: %(default)g)",
    )
    option(
        "--delta",
        type=float,
        default=defaults.DELTA,
        help="delta of that budget (default: %(default)s)",
    )
    option("--loss", default=defaults.LOSS, help="loss function (default: %(default)s)")
    option(
        "--rows-min",
        type=int,
        default=1,
        help="fewest common rows to train on (default: the policy's)",
    )
    option(
        "--seed", type=int, default=defaults.SEED, help="public seed of the row order (default: 0)"
    )
    option("--run", help="name of the run (default: federation and time)")
    option("--manifest", type=Path, help="use this manifest instead of the planner's choices")
    option("--again", metavar="RUN", help="repeat a run under a new name")
    option("--no-wait", action="store_true", help="propose the run and return at once")


def _add_scoring(commands: Any, add: Adder) -> None:
    predict = add(
        commands,
        "predict",
        "score people with the model of a run: through this party's service (party.toml here, or "
        "--settings), or, after 'hdpvfl up', the people it held out",
        _later("scores", "predict"),
    )
    option = predict.add_argument
    option(
        "run",
        nargs="?",
        default=defaults.RUN,
        help="the run that trained the model (default: %(default)s)",
    )
    option(
        "--epsilon",
        type=float,
        default=defaults.EPSILON,
        help="price of one noised score (default: %(default)g)",
    )
    option(
        "--delta",
        type=float,
        default=defaults.DELTA,
        help="delta of that price (default: %(default)s)",
    )
    option("--noised", action="store_true", help="add noise to the scores")
    option(
        "--exact",
        action="store_true",
        help="after descent: scores without noise; ledgers book infinite epsilon",
    )
    option(
        "--rows",
        type=Path,
        help="file of people to score; after 'up' a folder with every PARTY.csv",
    )
    option("--settings", type=Path, help="the service's file (default: party.toml, if it is here)")
    option(
        "-o", "--output", type=Path, help="with a service: file for the scores, .csv or .parquet"
    )
    option(
        "--keep",
        action="store_true",
        help="with a service: keep the session open for 'hdpvfl score'",
    )
    option(
        "--coarsen", type=float, default=0.0, help="round scores to steps of this many deviations"
    )
    option(
        "--without", action="store_true", help="if a partner is away, score without it and name it"
    )
    option(
        "--rows-min",
        type=int,
        default=2,
        help="with a service: fewest common people to score (default: 2)",
    )
    option("--out", type=Path, default=Path(), help="folder with runs/ and state/ (default: here)")
    score = _with_settings(
        add(
            commands,
            "score",
            "ask an open scoring session for single people",
            _later("scores", "score"),
        )
    )
    score.add_argument("run", help="the session that 'hdpvfl predict --keep' opened")
    score.add_argument("ids", nargs="*", metavar="ID", help="this party's ids; they do not leave")
    score.add_argument(
        "--place", type=int, nargs="*", help="places in the common order, instead of ids"
    )
    score.add_argument("--end", action="store_true", help="end the session")
