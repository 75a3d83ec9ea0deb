"""What a service says while it stands: levelled lines, as text or JSON, from a closed list.

It owns the one logger, the events and the fields a line may have; no field can hold a value from
anybody's rows. Whoever wants to say something new adds its name here.
"""

from __future__ import annotations

import json
import logging
import sys
import time
from typing import Any, Literal

Format = Literal["text", "json"]
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
    "key_replaced": logging.WARNING,
}
_LOGGER = logging.getLogger("hdpvfl")


class _Line(logging.Formatter):
    def __init__(self, form: Format) -> None:
        super().__init__()
        self._form = form

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + "Z"
        fields: dict[str, Any] = record.__dict__.get("fields", {})
        if self._form == "json":
            line = {"time": moment, "level": record.levelname.lower(), "event": record.msg}
            return json.dumps({**line, **fields})
        words = " ".join(f"{name}={_word(value)}" for name, value in fields.items())
        return f"{moment} {record.levelname.lower():7} {record.msg} {words}".rstrip()


def _word(value: Any) -> str:
    text = ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    return json.dumps(text) if " " in text or not text else text


def begin(form: Format = "text", level: str = "info") -> None:
    """Write to standard error, where a service manager reads it."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Line(form))
    _LOGGER.handlers[:] = [handler]
    _LOGGER.setLevel(level.upper())
    _LOGGER.propagate = False


def say(event: str, **fields: Any) -> None:
    """One line; an event or field that is not on the list is a mistake of the program."""
    unknown = set(fields) - FIELDS
    if unknown or event not in EVENTS:
        raise AssertionError(f"{event} {sorted(unknown)} is not on the list of what may be logged")
    _LOGGER.log(EVENTS[event], event, extra={"fields": fields})
