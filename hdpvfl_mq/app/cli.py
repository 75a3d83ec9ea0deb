"""The command `hdpvfl`: parse arguments, call functions, turn errors into exit codes.

It owns the list of commands; the modules of commands/ own their options. Imports are late, because
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
from hdpvfl_mq.app.commands.keys import add_key_commands
from hdpvfl_mq.app.commands.local import add_demo_commands
from hdpvfl_mq.app.commands.look_back import add_evidence_commands
from hdpvfl_mq.app.commands.offline import add_offline_commands
from hdpvfl_mq.app.commands.scoring import add_scoring_commands
from hdpvfl_mq.app.parsing import EXIT_CODES, add_command
from hdpvfl_mq.errors import HdpvflError, OperatorError, of_the_system
from schemas.text import printable

STOPPED = 130  # exit code after Ctrl-C


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
    add_demo_commands(commands)
    _add_services(commands)
    add_key_commands(commands)
    add_federation_commands(commands)
    add_scoring_commands(commands)
    add_offline_commands(commands)
    add_evidence_commands(commands)
    completion = add_command(
        commands,
        "completion",
        "print the completion script for a shell",
        _completion,
        examples=("hdpvfl completion bash > ~/.local/share/bash-completion/completions/hdpvfl",),
    )
    completion.add_argument("shell", choices=("bash", "zsh"), help="the shell to load it in")
    return parser


def _add_services(commands: Any) -> None:
    broker = add_command(
        commands,
        "broker",
        "run the broker's service (docs/operations.md)",
        _broker,
        examples=("hdpvfl broker broker.toml",),
    )
    party = add_command(
        commands,
        "party",
        "run one party's service (docs/operations.md)",
        _party,
        examples=("hdpvfl party party.toml",),
    )
    for parser, file in ((broker, "broker.toml"), (party, "party.toml")):
        parser.add_argument(
            "settings", type=Path, nargs="?", default=Path(file), help=f"default: {file}"
        )


def _broker(options: argparse.Namespace) -> int:
    from broker.__main__ import main as broker_main  # noqa: PLC0415 - start-up

    return broker_main(options.settings, as_json=options.json)


def _party(options: argparse.Namespace) -> int:
    from parties.__main__ import main as party_main  # noqa: PLC0415 - start-up

    return party_main(options.settings, as_json=options.json)


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
