"""The command `hdpvfl`: words to functions, errors to exit codes.

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
from hdpvfl_mq.app.commands.federate import add_federation_commands
from hdpvfl_mq.app.commands.look_back import add_evidence_commands
from hdpvfl_mq.errors import HdpvflError, OperatorError, of_the_system
from schemas.base import printable

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
        if options.json:
            print(json.dumps({"error": str(stop), "exit": stop.exit_code}))
        print(f"hdpvfl: {printable(str(stop))}", file=sys.stderr)
        return stop.exit_code
    except OSError as broken:
        print(f"hdpvfl: {printable(of_the_system(broken))}", file=sys.stderr)
        return OperatorError.exit_code
    except KeyboardInterrupt:
        print("hdpvfl: stopped", file=sys.stderr)
        return 130


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
    _add_file_command(
        commands, "broker", "run the broker and its coordinator", _broker, "broker.toml"
    )
    _add_file_command(commands, "party", "run one party", _party, "party.toml")
    keys = _add(commands, "keys", "make the keys of a party or a broker", _keys)
    keys.add_argument("folder", type=Path, help="a folder that has no keys yet")
    add_federation_commands(commands, _add)
    _add_predict(commands)
    _add_plan(commands)
    _add_ledger(commands)
    _add_ids(commands)
    add_evidence_commands(commands, _add)
    _add(commands, "datasets", "list the data sets of the demo", _datasets)
    return parser


def _add(
    commands: Any, name: str, text: str, command: Callable[[argparse.Namespace], int]
) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(
        name, help=text, description=text[0].upper() + text[1:] + ".", epilog=EXIT_CODES
    )
    parser.add_argument("--json", action="store_true", help="print JSON for machines")
    parser.set_defaults(command=command)
    return parser


def _add_file_command(
    commands: Any, name: str, text: str, command: Callable[[argparse.Namespace], int], example: str
) -> None:
    parser = _add(commands, name, text + " (docs/operations.md)", command)
    parser.add_argument(
        "settings", type=Path, nargs="?", default=Path(example), help=f"default: {example}"
    )


def _add_up(commands: Any) -> None:
    up = _add(commands, "up", "run a whole federation on this machine, one process a party", _up)
    add = up.add_argument
    add("--dataset", default="visits", help="see 'hdpvfl datasets' (default: visits)")
    add("--passives", type=int, default=2, help="passive parties the columns are dealt to")
    add("--epsilon", type=float, default=1.0, help="privacy budget of every party (default: 1)")
    add("--delta", type=float, default=1e-5, help="its delta (default: 1e-5; the paper's is 0.01)")
    add(
        "--guarantee",
        default="sound",
        help="sound: proved; paper: as published, not a proof; none: no privacy",
    )
    add("--epochs", type=int, help="passes over the rows; takes descent instead of one round")
    add("--batch", type=int, help="rows of a batch; takes descent instead of one round")
    add("--loss", help="default: the data set's own")
    add(
        "--penalty",
        help="none, l2, l1, ... (a wrong name lists all); takes descent instead of one round",
    )
    add("--seed", type=int, default=0, help="public seed of split and row order")
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
        help="go on with an interrupted run, by default the last one",
    )


def _add_predict(commands: Any) -> None:
    predict = _add(
        commands,
        "predict",
        "score rows with the models of a run of 'up', through the protocol; by default those it "
        "held out (separate hosts: docs/prediction.md)",
        _predict,
    )
    add = predict.add_argument
    add("run", nargs="?", default="latest", help="the run that was trained (default: latest)")
    add("--epsilon", type=float, default=1.0, help="budget of the passive parties for this alone")
    add("--delta", type=float, default=1e-5, help="its delta (default: 1e-5; the paper's is 0.01)")
    add("--exact", action="store_true", help="no noise; the ledgers book infinitely much")
    add("--rows", type=Path, help="a folder with PARTY.csv of every party: id and its columns")
    add("--out", type=Path, default=Path(), help="folder with runs/ and state/ (default: here)")


def _add_plan(commands: Any) -> None:
    plan = _add(commands, "plan", "what a budget buys, from public quantities only", _plan)
    plan.add_argument("--rows", type=int, required=True, help="common rows you expect")
    plan.add_argument("--passives", type=int, default=1)
    plan.add_argument("--epsilon", type=float, default=1.0)
    plan.add_argument("--delta", type=float, default=1e-5, help="at most 1 / rows (default: 1e-5)")
    plan.add_argument("--loss", default="logistic")
    plan.add_argument(
        "--lifetime", type=float, help="epsilon of a party's cap (default: ten times --epsilon)"
    )


def _add_ledger(commands: Any) -> None:
    ledger = _add(commands, "ledger", "what a party has spent: show, verify or export it", _ledger)
    ledger.add_argument("what", choices=("show", "verify", "export", "new-secret"))
    ledger.add_argument("file", type=Path, help="for instance state/active/ledger.db")
    ledger.add_argument("--run", help="export: open the entries of this run only")


def _add_ids(commands: Any) -> None:
    ids = _add(commands, "ids", "what the id rules make of this party's own ids", _ids)
    ids.add_argument("what", choices=("check",))
    ids.add_argument("settings", type=Path, help="settings file, for instance party.toml")
    ids.add_argument("--rows", type=int, default=20, help="rows to show (default 20)")


def _up(options: argparse.Namespace) -> int:
    from rich.console import Console  # noqa: PLC0415 - start-up

    from hdpvfl_mq.app.commands import up  # noqa: PLC0415 - start-up

    fields = up.UpOptions.__dataclass_fields__
    chosen = up.UpOptions(**{name: getattr(options, name) for name in fields})
    console = Console()
    if options.resume:
        result = up.resume(options.resume, chosen, console, as_json=options.json)
    else:
        result = up.start(chosen, console, as_json=options.json)
    if options.json:
        print(json.dumps(result))
    return 0


def _predict(options: argparse.Namespace) -> int:
    from rich.console import Console  # noqa: PLC0415 - start-up

    from hdpvfl_mq.app.commands import predict  # noqa: PLC0415 - start-up

    fields = predict.PredictOptions.__dataclass_fields__
    chosen = predict.PredictOptions(**{name: getattr(options, name) for name in fields})
    result = predict.start(chosen, Console(quiet=options.json))
    if options.json:
        print(json.dumps(result))
    return 0


def _broker(options: argparse.Namespace) -> int:
    from broker.__main__ import main as broker_main  # noqa: PLC0415 - start-up

    return broker_main(options.settings)


def _party(options: argparse.Namespace) -> int:
    from parties.__main__ import main as party_main  # noqa: PLC0415 - start-up

    return party_main(options.settings)


def _keys(options: argparse.Namespace) -> int:
    from hdpvfl_mq.runtime.keys import make_keys  # noqa: PLC0415 - start-up

    made = make_keys(options.folder)
    public = {"verify_key": made.verify_hex, "curve_key": made.curve_public.hex()}
    if options.json:
        print(json.dumps(public))
    else:
        print(f"secrets in {options.folder}, readable by you only; give the others its public.toml")
    return 0


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
    found = plan.figures(options.rows, options.passives, budget, loss, lifetime=lifetime)
    if options.json:
        print(json.dumps(found))
    else:
        plan.show(found)
    return 0


def _ledger(options: argparse.Namespace) -> int:
    from hdpvfl_mq.app.commands import ledger  # noqa: PLC0415 - start-up

    if options.what == "export":
        return ledger.export(options.file, options.run)
    if options.what == "new-secret":
        return ledger.new_secret(options.file)
    command = ledger.show if options.what == "show" else ledger.verify
    return command(options.file, as_json=options.json)


def _ids(options: argparse.Namespace) -> int:
    from hdpvfl_mq.app.commands import ids  # noqa: PLC0415 - start-up

    return ids.check(options.settings, rows=options.rows, as_json=options.json)


def _datasets(options: argparse.Namespace) -> int:
    from hdpvfl_mq.app.commands.up import data_folder  # noqa: PLC0415 - start-up
    from hdpvfl_mq.data.bundled import describe  # noqa: PLC0415 - start-up

    rows = describe(data_folder())
    if options.json:
        print(json.dumps(rows))
        return 0
    from rich.console import Console  # noqa: PLC0415 - start-up
    from rich.table import Table  # noqa: PLC0415 - start-up

    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in rows[0]:
        table.add_column(title.replace("_", " "))
    for row in rows:
        table.add_row(*(str(value) for value in row.values()))
    Console().print(table)
    return 0


def run() -> NoReturn:
    """The program: leave with the exit code at once.

    Arrow's threads may end after the interpreter has begun to go, and then abort the process: a
    command that had said what is wrong was seen to exit by a signal instead of its code.
    """
    code = main()
    with suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    run()
