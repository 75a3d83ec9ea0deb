"""Parsers for the commands that score people: predict and score.

It owns their options; scores.py implements them and is imported when called.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from hdpvfl_mq.app import defaults
from hdpvfl_mq.app.commands.federate import with_settings
from hdpvfl_mq.app.parsing import add_budget, add_command, later


def add_scoring_commands(commands: Any) -> None:
    """Add these commands to the parser."""
    _add_predict(commands)
    _add_score(commands)


def _add_predict(commands: Any) -> None:
    predict = add_command(
        commands,
        "predict",
        "score people with the model of a run: through this party's service (party.toml here, or "
        "--settings), or, after 'hdpvfl up', the people it held out",
        later("scores", "predict"),
        examples=(
            "hdpvfl predict",
            "hdpvfl predict visits-1 --rows new/",
            "hdpvfl predict spring-1 --rows new.parquet -o scores.parquet",
        ),
    )
    predict.add_argument(
        "run",
        nargs="?",
        default=defaults.RUN,
        help="the run that trained the model (default: %(default)s)",
    )
    add_budget(
        predict,
        epsilon="price of one noised score (default: %(default)g)",
        delta="delta of that price (default: %(default)s)",
    )
    _add_prediction_options(predict)


def _add_prediction_options(predict: argparse.ArgumentParser) -> None:
    option = predict.add_argument
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


def _add_score(commands: Any) -> None:
    score = with_settings(
        add_command(
            commands,
            "score",
            "ask an open scoring session for single people",
            later("scores", "score"),
            examples=(
                "hdpvfl score spring-1-scores-1 4711 4712",
                "hdpvfl score spring-1-scores-1 --end",
            ),
        )
    )
    score.add_argument("run", help="the session that 'hdpvfl predict --keep' opened")
    score.add_argument("ids", nargs="*", metavar="ID", help="this party's ids; they do not leave")
    score.add_argument(
        "--place", type=int, nargs="*", help="places in the common order, instead of ids"
    )
    score.add_argument("--end", action="store_true", help="end the session")
