"""The command `hdpvfl`: parse arguments, call functions, turn errors into exit codes.

It owns options and help; what a command does is in the module it calls. Imports are late, because
`hdpvfl --help` should not load numpy.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from hdpvfl_mq import __version__
from hdpvfl_mq.app import defaults
from hdpvfl_mq.app.commands.federate import add_federation_commands
from hdpvfl_mq.app.commands.keys import add_key_commands
from hdpvfl_mq.app.commands.look_back import add_evidence_commands
from hdpvfl_mq.app.examples import EXAMPLES
from hdpvfl_mq.errors import HdpvflError, OperatorError, SettingsError, of_the_system
from schemas.text import printable

STOPPED = 130  # exit code after Ctrl-C
WIDE = 100  # columns of a terminal that has room for where a data set comes from
EXIT_CODES = (
    "exit codes: 0 done, 1 a check failed, 2 wrong use or settings, 3 refused by policy or budget, "
    "4 a peer or the network, 5 integrity of stored evidence, 130 stopped by Ctrl-C"
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code."""
    options = _parser().parse_args(arguments)
    command: Callable[[argparse.Namespace], int] = options.command
    try:
        return command(options)
    except HdpvflError as stop:
        return _failed(str(stop), stop.exit_code, as_json=options.json)
    except BrokenPipeError:  # the reader closed the pipe, as in 'hdpvfl audit | head'
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as broken:
        return _failed(of_the_system(broken), OperatorError.exit_code, as_json=options.json)
    except KeyboardInterrupt as stop:
        return _failed(str(stop) or "stopped", STOPPED, as_json=options.json)


def _failed(text: str, code: int, *, as_json: bool) -> int:
    """Say why a command failed, for people and, with --json, for machines."""
    if as_json:
        print(json.dumps({"error": text, "exit": code}))
    print(f"hdpvfl: {printable(text)}", file=sys.stderr)
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="hdpvfl",
        description="Train one generalized linear model across companies that hold different "
        "columns about the same people, with differential privacy for every party's rows.",
        epilog=EXIT_CODES,
    )
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_up(commands)
    _add_file_command(commands, "broker", "run the broker's service", _broker, "broker.toml")
    _add_file_command(commands, "party", "run one party's service", _party, "party.toml")
    add_key_commands(commands, _add)
    add_federation_commands(commands, _add)
    _add_plan(commands)
    _add_ledger(commands)
    _add_ids(commands)
    add_evidence_commands(commands, _add)
    _add(commands, "datasets", "list the data sets of the demo", _datasets)
    completion = _add(
        commands, "completion", "print the completion script for a shell", _completion
    )
    completion.add_argument("shell", choices=("bash", "zsh"), help="the shell to load it in")
    return parser


def _add(
    commands: Any, name: str, text: str, command: Callable[[argparse.Namespace], int]
) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(
        name,
        help=text,
        description=text[0].upper() + text[1:] + ".",
        epilog=_epilog(name),
        formatter_class=Help,
    )
    parser.add_argument("--json", action="store_true", help="print JSON for machines")
    parser.set_defaults(command=command)
    return parser


class Help(argparse.HelpFormatter):
    """Keeps the line breaks of examples and wraps all other text."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        parts = text.split("\n\n")
        return "\n\n".join(
            part
            if part.startswith("examples:")
            else super(Help, self)._fill_text(part, width, indent)
            for part in parts
        )


def _epilog(name: str) -> str:
    lines = "\n".join(f"  {line}" for line in EXAMPLES[name])
    return f"examples:\n{lines}\n\n{EXIT_CODES}"


def _add_file_command(
    commands: Any, name: str, text: str, command: Callable[[argparse.Namespace], int], example: str
) -> None:
    parser = _add(commands, name, text + " (docs/operations.md)", command)
    parser.add_argument(
        "settings", type=Path, nargs="?", default=Path(example), help=f"default: {example}"
    )


def _add_up(commands: Any) -> None:
    up = _add(commands, "up", "run a whole federation on this machine, one process per party", _up)
    add = up.add_argument
    add("--dataset", default=defaults.DATASET, help="see 'hdpvfl datasets' (default: %(default)s)")
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
    add(
        "--passives",
        type=int,
        default=defaults.PASSIVES,
        help="number of passive parties (default: %(default)s)",
    )
    add(
        "--epsilon",
        type=float,
        default=defaults.EPSILON,
        help="privacy budget of every party (default: %(default)g)",
    )
    add(
        "--delta",
        type=float,
        default=defaults.DELTA,
        help="delta of that budget (default: %(default)s; the paper uses 0.01)",
    )
    add(
        "--guarantee",
        default=defaults.GUARANTEE,
        help="sound: proved; paper: as published, not proved; none: no privacy (default: "
        "%(default)s)",
    )
    add("--epochs", type=int, help="passes over the rows; trains by descent")
    add("--batch", type=int, help="rows in a batch; trains by descent")
    add("--loss", help="loss function (default: the data set's own)")
    add(
        "--penalty",
        help="none, l2, l1 or elastic_net; trains by descent",
    )
    add(
        "--noise",
        choices=("gaussian", "bounded"),
        help="noise of labels and scores; see 'hdpvfl plan' (default: gaussian)",
    )
    add(
        "--disclosed-rows",
        type=int,
        help="release exact scores of this many agreed rows instead of noised ones",
    )
    add("--held-out-rows", type=int, help="common rows kept aside to measure the joint model")
    add(
        "--seed",
        type=int,
        default=defaults.SEED,
        help="public seed of the split and the row order (default: %(default)s)",
    )
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


def _add_plan(commands: Any) -> None:
    plan = _add(commands, "plan", "show what a budget buys, from public quantities only", _plan)
    plan.add_argument("--rows", type=int, required=True, help="common rows you expect")
    plan.add_argument(
        "--passives", type=int, default=1, help="number of passive parties (default: 1)"
    )
    plan.add_argument(
        "--epsilon",
        type=float,
        default=defaults.EPSILON,
        help="budget of one run (default: %(default)g)",
    )
    plan.add_argument(
        "--delta",
        type=float,
        default=defaults.DELTA,
        help="delta of that budget, at most 1 / rows (default: %(default)s)",
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
    ledger = _add(commands, "ledger", "show, verify or export what a party has spent", _ledger)
    ledger.add_argument(
        "what",
        choices=("show", "verify", "scored", "export", "new-secret"),
        help="show what is spent and left, verify the chain of entries, count scored people, "
        "export every entry as JSON lines, or make a new secret after the old one was lost",
    )
    ledger.add_argument("file", type=Path, help="the ledger, such as state/active/ledger.db")
    ledger.add_argument("--run", help="with export: open only the entries of this run")


def _add_ids(commands: Any) -> None:
    ids = _add(commands, "ids", "show what the id rules make of this party's ids", _ids)
    ids.add_argument("what", choices=("check",), help="apply the rules to the data file")
    ids.add_argument("settings", type=Path, help="settings file, such as party.toml")
    ids.add_argument("--rows", type=int, default=20, help="rows to show (default: 20)")


def _up(options: argparse.Namespace) -> int:
    from hdpvfl_mq.app.demo.nursery import Nursery  # noqa: PLC0415 - start-up

    with Nursery() as nursery:  # first, so that its processes import beside this one
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


def _broker(options: argparse.Namespace) -> int:
    from broker.__main__ import main as broker_main  # noqa: PLC0415 - start-up

    return broker_main(options.settings, as_json=options.json)


def _party(options: argparse.Namespace) -> int:
    from parties.__main__ import main as party_main  # noqa: PLC0415 - start-up

    return party_main(options.settings, as_json=options.json)


def _plan(options: argparse.Namespace) -> int:
    from hdpvfl_mq.app.commands import plan  # noqa: PLC0415 - start-up
    from hdpvfl_mq.runtime.settings import check_settings  # noqa: PLC0415 - start-up
    from schemas.model import LossSpec  # noqa: PLC0415 - start-up
    from schemas.privacy import Budget  # noqa: PLC0415 - start-up

    budget = check_settings(Budget, {"epsilon": options.epsilon, "delta": options.delta}, "options")
    loss = check_settings(LossSpec, {"name": options.loss}, "options: loss")
    lifetime = None
    if options.lifetime is not None:
        cap = {"epsilon": options.lifetime, "delta": options.delta}
        lifetime = check_settings(Budget, cap, "options: lifetime")
    partners = tuple(options.partners.split(",")) if options.partners else ()
    passives = len(partners) or options.passives
    found = plan.figures(options.rows, passives, budget, loss, lifetime=lifetime)
    if options.write is not None:
        parties = (options.active, partners or tuple(f"passive-{n + 1}" for n in range(passives)))
        plan.write(options.write, found["manifest"], options.run, parties)
    if options.json:
        print(json.dumps(found))
    else:
        plan.show(found)
        if options.write is not None:
            print(f"written: {options.write}; hdpvfl train --manifest {options.write} proposes it")
    return 0


def _ledger(options: argparse.Namespace) -> int:
    from hdpvfl_mq.app.commands import ledger  # noqa: PLC0415 - start-up

    if options.what == "export":
        return ledger.export(options.file, options.run)
    if options.what == "new-secret":
        return ledger.new_secret(options.file, as_json=options.json)
    commands = {"show": ledger.show, "verify": ledger.verify, "scored": ledger.scored}
    return commands[options.what](options.file, as_json=options.json)


def _ids(options: argparse.Namespace) -> int:
    from hdpvfl_mq.app.commands import ids  # noqa: PLC0415 - start-up

    return ids.check(options.settings, rows=options.rows, as_json=options.json)


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


def _completion(options: argparse.Namespace) -> int:
    from hdpvfl_mq.app.commands.completion import script  # noqa: PLC0415 - start-up

    text = script(_parser(), options.shell)
    print(json.dumps({"script": text}) if options.json else text, end="")
    return 0


def run() -> NoReturn:
    """Entry point of the program: exit at once with the code of the command.

    Arrow's threads may still run while the interpreter shuts down, and then abort the process: a
    command that had printed its error ended by a signal instead of with its exit code.
    """
    code = main()
    with suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    run()
