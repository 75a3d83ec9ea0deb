"""Parsers for the commands of the local demo: up and datasets.

It owns their options; up.py and demo/ implement them and are imported when called.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from hdpvfl_mq.app import defaults
from hdpvfl_mq.app.parsing import add_budget, add_command, add_private_model
from hdpvfl_mq.errors import SettingsError

WIDE = 100  # a terminal this wide also shows where a data set comes from


def add_demo_commands(commands: Any) -> None:
    """Add these commands to the parser."""
    _add_up(commands)
    add_command(
        commands,
        "datasets",
        "list the data sets of the demo",
        _datasets,
        examples=("hdpvfl datasets",),
    )


def _add_up(commands: Any) -> None:
    up = add_command(
        commands,
        "up",
        "run a whole federation on this machine, one process per party",
        _up,
        examples=(
            "hdpvfl up --passives 5 --epsilon 2",
            "hdpvfl up --active bank.csv --passive shop.csv --id customer_id --label default",
            "hdpvfl up --resume",
        ),
    )
    up.add_argument(
        "--dataset", default=defaults.DATASET, help="see 'hdpvfl datasets' (default: %(default)s)"
    )
    _add_own_data(up)
    _add_privacy(up)
    _add_training(up)
    _add_run(up)


def _add_own_data(up: argparse.ArgumentParser) -> None:
    add = up.add_argument
    add("--active", type=Path, metavar="FILE", help="own data: the file with the label")
    add(
        "--passive",
        type=Path,
        action="append",
        metavar="FILE",
        help="own data: a partner's file; repeat it for more",
    )
    add(
        "--id",
        metavar="COLUMN",
        help="own data: the column that identifies a person, in every file",
    )
    add("--label", metavar="COLUMN", help="own data: the column of --active to predict")
    add("--positive", metavar="VALUE", help="own data: the label that counts as 1")
    add("--separator", default=",", help="own data: separator of cells in CSV files (default: ,)")
    add(
        "--decimal", default=".", choices=(".", ","), help="own data: the decimal sign (default: .)"
    )
    add("--encoding", default="utf-8", help="own data: encoding of CSV files (default: utf-8)")


def _add_privacy(up: argparse.ArgumentParser) -> None:
    up.add_argument(
        "--passives",
        type=int,
        default=defaults.PASSIVES,
        help="number of passive parties (default: %(default)s)",
    )
    add_budget(
        up,
        epsilon="privacy budget of every party (default: %(default)g)",
        delta="delta of that budget (default: %(default)s; the paper uses 0.01)",
    )
    up.add_argument(
        "--guarantee",
        default=defaults.GUARANTEE,
        help="sound: proved; paper: as published, not proved; none: no privacy (default: "
        "%(default)s)",
    )


def _add_training(up: argparse.ArgumentParser) -> None:
    add = up.add_argument
    add("--epochs", type=int, help="passes over the rows; trains by descent")
    add("--batch", type=int, help="rows in a batch; trains by descent")
    add("--loss", help="loss function (default: the data set's own)")
    add("--penalty", help="none, l2, l1 or elastic_net; trains by descent")
    add_private_model(up)
    add(
        "--seed",
        type=int,
        default=defaults.SEED,
        help="public seed of the split and the row order (default: %(default)s)",
    )


def _add_run(up: argparse.ArgumentParser) -> None:
    add = up.add_argument
    add("--out", type=Path, default=Path(), help="folder for runs/ and state/ (default: here)")
    add("--port", type=int, help="the broker's port (default: a free one)")
    add("--run", help="name of the run (default: data set and time)")
    add(
        "--resolve-again",
        action="store_true",
        help="find the common rows again even if all parties keep them from an earlier run",
    )
    add(
        "--resume",
        nargs="?",
        const="last",
        metavar="RUN",
        help="continue an interrupted run (default: the last one)",
    )


def _up(options: argparse.Namespace) -> int:
    from hdpvfl_mq.app.demo.nursery import Nursery  # noqa: PLC0415 - start-up

    with Nursery() as nursery:  # first, so that its processes import while this one does
        from rich.console import Console  # noqa: PLC0415 - start-up

        from hdpvfl_mq.app.commands import up  # noqa: PLC0415 - start-up
        from hdpvfl_mq.data.without_pandas import leave_pandas_out  # noqa: PLC0415 - start-up

        leave_pandas_out()
        options.own = _own_files(options)
        fields = up.UpOptions.__dataclass_fields__
        chosen = up.UpOptions(**{name: getattr(options, name) for name in fields})
        console = Console(quiet=options.json)
        if options.resume:
            result = up.resume(options.resume, chosen, console, nursery)
        else:
            result = up.start(chosen, console, nursery)
    if options.json:
        print(json.dumps(result))
    return 0


def _own_files(options: argparse.Namespace) -> Any:
    named = {name: getattr(options, name) for name in ("active", "passive", "id", "label")}
    if not any((*named.values(), options.positive)):
        return None
    missing = [f"--{name}" for name, value in named.items() if not value]
    if missing:
        raise SettingsError(
            f"own files need {', '.join(missing)} as well, as in: hdpvfl up --active bank.csv "
            "--passive shop.csv --id customer_id --label default"
        )
    from hdpvfl_mq.app.demo.own_files import OwnFiles  # noqa: PLC0415 - start-up
    from hdpvfl_mq.data.csv_stream import Dialect  # noqa: PLC0415 - start-up

    return OwnFiles(
        options.active,
        tuple(options.passive),
        options.id,
        options.label,
        options.positive,
        Dialect(options.separator, options.decimal, options.encoding),
    )


def _datasets(options: argparse.Namespace) -> int:
    from hdpvfl_mq.app.demo.further import data_folder  # noqa: PLC0415 - start-up
    from hdpvfl_mq.data.bundled import describe  # noqa: PLC0415 - start-up

    rows = describe(data_folder())
    if options.json:
        print(json.dumps(rows))
        return 0
    from rich.console import Console  # noqa: PLC0415 - start-up
    from rich.table import Table  # noqa: PLC0415 - start-up

    table = Table(box=None, pad_edge=False, header_style="bold")
    console = Console()
    titles = [each for each in rows[0] if each != "origin" or console.width >= WIDE]
    for title in titles:
        table.add_column(title.replace("_", " "))
    for row in rows:
        table.add_row(*(str(row[title]) for title in titles))
    console.print(table)
    return 0
