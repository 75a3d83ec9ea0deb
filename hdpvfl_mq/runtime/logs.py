"""The log of a service: levelled lines, as text or JSON, from a closed list of events.

It owns the events and the fields a line may have; no field can hold a value from anybody's rows.
New events and fields must be added to the list here. Lines about a run are also written to the
run's folder, where `hdpvfl logs RUN` reads them.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

Format = Literal["text", "json"]
Level = Literal["info", "warning", "error"]
RUN_LOG = "log.jsonl"
RUN_LOG_MAX_BYTES = 2**20
_CLEAR = "\r\x1b[K"  # erases a line of a terminal
FIELDS = frozenset(
    {
        *("federation", "party", "peer", "address", "version", "members", "waiting_for"),
        *("run", "phase", "outcome", "reason", "rounds", "epsilon", "epsilon_left", "exit"),
    }
)
EVENTS = {
    "service_started": logging.INFO,
    "service_stopped": logging.INFO,
    "service_failed": logging.ERROR,
    "connected": logging.INFO,
    "not_connected": logging.WARNING,
    "peer_connected": logging.INFO,
    "turned_away": logging.WARNING,
    "run_proposed": logging.INFO,
    "run_asked": logging.WARNING,
    "run_answered": logging.INFO,
    "run_refused": logging.WARNING,
    "run_opened": logging.INFO,
    "run_resumed": logging.INFO,
    "run_phase": logging.INFO,
    "run_waits": logging.INFO,
    "run_over": logging.INFO,
    "run_failed": logging.ERROR,
    "invited": logging.INFO,
    "knocked": logging.INFO,
    "member_waits": logging.WARNING,
    "member_joined": logging.INFO,
    "member_left": logging.INFO,
    "keys_differ": logging.ERROR,
    "keys_changed": logging.WARNING,
}


class Log:
    """Writes the log of one service to standard error, where a service manager reads it."""

    def __init__(
        self,
        form: Format = "text",
        level: Level = "info",
        *,
        runs: Path | None = None,
        owner: str = "",
    ) -> None:
        self._form, self._runs, self._owner = form, runs, owner
        self._level = logging.getLevelNamesMapping()[level.upper()]
        self._shown = ""

    def say(self, event: str, **fields: Any) -> None:
        """Write one line; an event or field that is not on the list is a bug in the program."""
        unknown = set(fields) - FIELDS
        if unknown or event not in EVENTS:
            raise AssertionError(
                f"{event} {sorted(unknown)} is not on the list of what may be logged"
            )
        moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        line = {"time": moment, "level": logging.getLevelName(EVENTS[event]).lower()}
        line |= {"event": event, **fields}
        if EVENTS[event] >= self._level:
            self._write(json.dumps(line) if self._form == "json" else as_text(line))
        if "run" in fields:
            self._keep(fields["run"], line)

    def show(self, text: str) -> None:
        """Show a line on a terminal that the next line replaces; without a terminal do nothing."""
        if text != self._shown and sys.stderr.isatty():
            self._shown = text
            columns = os.get_terminal_size(sys.stderr.fileno()).columns
            print(_CLEAR + text[: columns - 1], end="", file=sys.stderr, flush=True)

    def _write(self, text: str) -> None:
        if self._shown:
            print(_CLEAR, end="", file=sys.stderr)
            self._shown = ""
        print(text, file=sys.stderr, flush=True)

    def _keep(self, run: str, line: dict[str, Any]) -> None:
        """Append the line to the log beside the run's journal, once it has one; ignore errors."""
        folder = None if self._runs is None else self._runs / run / self._owner
        if folder is None or not folder.is_dir():
            return
        path = folder / RUN_LOG
        with suppress(OSError):
            if not path.exists() or path.stat().st_size < RUN_LOG_MAX_BYTES:
                with path.open("a") as file:
                    file.write(json.dumps(line) + "\n")


def as_text(line: dict[str, Any]) -> str:
    """A line as text for reading."""
    words = " ".join(
        f"{name}={_word(value)}"
        for name, value in line.items()
        if name not in ("time", "level", "event")
    )
    return f"{line['time']} {line['level']:7} {line['event']} {words}".rstrip()


def _word(value: Any) -> str:
    text = ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    return json.dumps(text) if " " in text or not text else text
