"""Text that people read on a terminal: what it may hold, and how long it may be.

It owns which characters are replaced; it knows no schema, so the command line can use it without
loading any.
"""

from __future__ import annotations

import unicodedata


def printable(text: str) -> str:
    """Text that cannot control a terminal: control and direction characters are replaced."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        "\N{REPLACEMENT CHARACTER}" if unicodedata.category(each) in _COMMANDS else each
        for each in text
    )


_COMMANDS = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}
TEXT_MAX = 500


def in_words(text: str) -> str:
    """Any text in the form that a message may carry."""
    return printable(text)[:TEXT_MAX]
