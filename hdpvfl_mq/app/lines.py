"""Lines of text for people: wrapped between words on a terminal, left whole in a pipe or file.

It owns the wrapping; commands own the words.
"""

from __future__ import annotations

import os
import sys
import textwrap

from schemas.text import printable

WIDTH_MIN = 40


def say(text: str = "") -> None:
    """Print one line; on a terminal that is too narrow it goes on below, indented.

    Part of the text may come from a peer, or from a file that somebody else wrote: it controls no
    terminal, and begins no line of its own.
    """
    print("\n".join(wrapped(printable(text), terminal_columns())), flush=True)


def terminal_columns() -> int | None:
    """The width of the terminal, or None if the output goes elsewhere."""
    try:
        return max(os.get_terminal_size(sys.stdout.fileno()).columns, WIDTH_MIN)
    except (OSError, ValueError, AttributeError):
        return None


def wrapped(text: str, columns: int | None) -> list[str]:
    """The pieces of a line; a word that is too long, such as a path, stays whole."""
    if columns is None or len(text) <= columns:
        return [text]
    indent = " " * (len(text) - len(text.lstrip()) + 2)
    return textwrap.wrap(
        text,
        columns,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
        drop_whitespace=True,
    )
