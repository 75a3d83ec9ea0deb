"""A process's own window: status.json, written for its operator, never sent.

It owns the file and how often it is written; it knows no role. Replaced atomically, so that a
reader never sees half of it.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

EVERY_S = 0.2


class Status:
    """One status file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._written_at = 0.0

    def due(self) -> bool:
        """Whether enough time has passed to write again."""
        return time.monotonic() - self._written_at >= EVERY_S

    def write(self, fields: dict[str, Any]) -> None:
        """Replace the file."""
        self._written_at = time.monotonic()
        write_atomically(self._path, json.dumps(fields))


def write_atomically(path: Path, text: str) -> None:
    """Replace a file's content in one step, readable by its owner only."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_suffix(path.suffix + ".new")
    with os.fdopen(os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(text)
    aside.replace(path)


def read(path: Path) -> dict[str, Any]:
    """What a status file says, or nothing yet."""
    try:
        fields: dict[str, Any] = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return fields
