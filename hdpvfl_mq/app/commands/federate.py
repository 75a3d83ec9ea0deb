"""Parsers for the commands of a federation of long-running services.

It owns their options; join.py and services.py implement them and are imported when called.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from hdpvfl_mq.app import defaults
from hdpvfl_mq.app.parsing import add_budget, add_command, add_private_model, later


def add_federation_commands(commands: Any) -> None:
    """Add these commands to the parser."""
    _add_init(commands)
    _add_invite(commands)
    _add_join(commands)
    _add_confirm(commands)
    _add_remove(commands)
    _add_questions(commands)
    _add_checks(commands)
    _add_answers(commands)
    _add_train(commands)


def with_settings(parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
    """The parser, with the option for the service's settings."""
    parser.add_argument(
        "--settings", type=Path, help="the service's file (default: party.toml or broker.toml)"
    )
    return parser


def _add_init(commands: Any) -> None:
    init = add_command(
        commands,
        "init",
        "make a federation, on the broker's machine",
        later("join", "init"),
        examples=("hdpvfl init spring --address broker.example.org:7700",),
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


def _add_invite(commands: Any) -> None:
    invite = with_settings(
        add_command(
            commands,
            "invite",
            "print one line that lets one party join",
            later("join", "invite"),
            examples=(
                "hdpvfl invite shop",
                "hdpvfl invite bank --role active --hours 24",
            ),
        )
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


def _add_join(commands: Any) -> None:
    join = add_command(
        commands,
        "join",
        "join a federation with an invitation",
        later("join", "join"),
        examples=(
            "hdpvfl join LINE --data customers.parquet --id customer_id --label default",
            'hdpvfl join LINE --data people.csv --id mail --id tel --id-kind "email|telephone:DE"',
            'hdpvfl join LINE --source env:WAREHOUSE --query "select * from people" --id person',
        ),
    )
    add = join.add_argument
    add("line", help="the line that 'hdpvfl invite' printed")
    add("--data", help="this party's rows: a file, a folder, or s3://bucket/folder")
    add(
        "--source", help="a database instead, such as sqlite:FILE, postgresql://HOST/BASE, env:NAME"
    )
    add("--query", help="the query that gives this party's rows; with --source")
    add("--id", action="append", required=True, help="an id column; repeat it for more")
    add("--id-kind", default="text", help="what id columns hold, as in 'name+date' (default: text)")
    add("--label", help="the label column; the active party only")
    add("--separator", default=",", help="separator of cells in CSV (default: ,)")
    add("--decimal", default=".", choices=(".", ","), help="the decimal sign in CSV (default: .)")
    add("--encoding", default="utf-8", help="encoding of CSV (default: utf-8)")
    add("--proxy", help="HOST:PORT of a SOCKS5 proxy that leads to the broker")
    add("--dataset", help="name of this data set in the ledger (default: the party's name)")
    add(
        "--lifetime-epsilon",
        type=float,
        default=defaults.LIFETIME_EPSILON,
        help="cap on epsilon over all runs, for ever (default: %(default)g)",
    )
    add(
        "--lifetime-delta",
        type=float,
        default=defaults.DELTA,
        help="delta of that cap (default: %(default)s)",
    )


def _add_confirm(commands: Any) -> None:
    confirm = with_settings(
        add_command(
            commands,
            "confirm",
            "pin a member's keys after comparing its three words",
            later("join", "confirm"),
            examples=("hdpvfl confirm shop bado lifu rano",),
        )
    )
    confirm.add_argument("party", help="the other member")
    confirm.add_argument(
        "words", nargs=3, help="three words, as the other member's operator reads them out"
    )


def _add_remove(commands: Any) -> None:
    remove = with_settings(
        add_command(
            commands,
            "remove",
            "remove a member",
            later("join", "remove"),
            examples=("hdpvfl remove shop",),
        )
    )
    remove.add_argument("party", help="the member to remove")
    remove.add_argument("--federation", help="which federation, if the broker hosts several")


def _add_questions(commands: Any) -> None:
    for name, text, *examples in (
        (
            "status",
            "show who is connected, what waits for whom, what is spent and left",
            "hdpvfl status",
            "hdpvfl status --settings /etc/hdpvfl/party.toml --json",
        ),
        ("runs", "list every run this service knows", "hdpvfl runs"),
        ("requests", "list proposed runs that wait for this operator's answer", "hdpvfl requests"),
        (
            "page",
            "print the address of this service's page, for a browser on this machine",
            "hdpvfl page",
        ),
    ):
        command = later("services", name)
        with_settings(add_command(commands, name, text, command, examples=tuple(examples)))


def _add_checks(commands: Any) -> None:
    look = "check everything a service needs, and say what to do"
    with_settings(
        add_command(
            commands, "doctor", look, later("doctor", "doctor"), examples=("hdpvfl doctor",)
        )
    )
    check = add_command(
        commands,
        "check",
        "find every fault of settings files at once",
        later("check", "check"),
        examples=("hdpvfl check party.toml policy.toml manifest.toml",),
    )
    check.add_argument(
        "files", type=Path, nargs="+", metavar="FILE", help="settings, policy, manifest"
    )


def _add_answers(commands: Any) -> None:
    named = "spring-20270101-120000"
    for name, text, rest in (
        ("approve", "accept a proposed run", ""),
        ("refuse", "decline a proposed run", " --reason 'no contract yet'"),
        ("stop", "end a run for everybody", ""),
        ("logs", "print this service's log of one run", ""),
    ):
        example = f"hdpvfl {name} {named}{rest}"
        command = later("services", name)
        parser = with_settings(add_command(commands, name, text, command, examples=(example,)))
        parser.add_argument("run", help="name of the run; see 'hdpvfl runs'")
        if name == "refuse":
            parser.add_argument("--reason", required=True, help="why; the other parties see it")


def _add_train(commands: Any) -> None:
    train = with_settings(
        add_command(
            commands,
            "train",
            "propose a run to the members and follow it",
            later("services", "train"),
            examples=(
                "hdpvfl train --with shop,telco --epsilon 1",
                "hdpvfl train --again spring-20270101-120000",
            ),
        )
    )
    option = train.add_argument
    option("--with", dest="partners", help="passive members, separated by commas (default: all)")
    add_budget(
        train,
        epsilon="privacy budget of every party (default: %(default)g)",
        delta="delta of that budget (default: %(default)s)",
    )
    option("--loss", default=defaults.LOSS, help="loss function (default: %(default)s)")
    add_private_model(train)
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
