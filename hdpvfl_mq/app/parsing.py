"""How every command is parsed: its help with examples and exit codes, and the option --json.

It owns the form of help; the modules of commands/ own the options. What a command does is imported
when it is called, because `hdpvfl --help` should not load numpy.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from importlib import import_module
from typing import Any

from hdpvfl_mq.app import defaults

EXIT_CODES = (
    "exit codes: 0 done, 1 a check failed, 2 wrong use or settings, 3 refused by policy or budget, "
    "4 a peer or the network, 5 integrity of stored evidence, 130 stopped by Ctrl-C"
)
Command = Callable[[argparse.Namespace], int]


def add_command(
    commands: Any, name: str, text: str, command: Command, *, examples: tuple[str, ...]
) -> argparse.ArgumentParser:
    """Add a command to the parser of `hdpvfl`; examples are shown by its --help."""
    lines = "\n".join(f"  {line}" for line in examples)
    parser: argparse.ArgumentParser = commands.add_parser(
        name,
        help=text,
        description=text[0].upper() + text[1:] + ".",
        epilog=f"examples:\n{lines}\n\n{EXIT_CODES}",
        formatter_class=Help,
    )
    parser.add_argument("--json", action="store_true", help="print JSON for machines")
    parser.set_defaults(command=command)
    return parser


def add_budget(parser: argparse.ArgumentParser, *, epsilon: str, delta: str) -> None:
    """Add --epsilon and --delta with their common defaults; each text is the option's help."""
    parser.add_argument("--epsilon", type=float, default=defaults.EPSILON, help=epsilon)
    parser.add_argument("--delta", type=float, default=defaults.DELTA, help=delta)


def add_private_model(parser: argparse.ArgumentParser) -> None:
    """Add the choices of the private model: noise, disclosed rows, rows held out."""
    add = parser.add_argument
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


def later(module: str, name: str) -> Command:
    """A command whose module is imported when it is called."""

    def call(options: argparse.Namespace) -> int:
        found = getattr(import_module(f"hdpvfl_mq.app.commands.{module}"), name)
        return int(found(options))

    return call


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
