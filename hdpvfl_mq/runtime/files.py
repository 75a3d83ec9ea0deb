"""Write files atomically, readable by their owner only.

It owns how such a file is written: it appears whole or not at all. It knows no content.
"""

from __future__ import annotations

import os
from pathlib import Path


def write_private(path: Path, content: bytes | str, *, durable: bool = False) -> None:
    """Replace a file atomically; `durable` waits until the content is on disk.

    Only one process may write a file, because the temporary file has the fixed path `aside_of`.
    """
    _write(aside_of(path), content, durable=durable)
    aside_of(path).replace(path)
    if durable:
        _sync_folder(path.parent)


def create_private(path: Path, content: bytes | str) -> None:
    """Write a new file and wait until it is on disk; FileExistsError if the file exists."""
    aside = path.with_name(f"{path.name}.{os.getpid()}.new")
    try:
        _write(aside, content, durable=True)
        os.link(aside, path)  # fails where the file exists, unlike a rename
    finally:
        aside.unlink(missing_ok=True)
    _sync_folder(path.parent)


def aside_of(path: Path) -> Path:
    """The temporary file that `write_private` renames to the final path."""
    return path.with_name(path.name + ".new")


def _sync_folder(folder: Path) -> None:
    """Wait until the names in a folder are on disk; a file alone may lose its name."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def _write(path: Path, content: bytes | str, *, durable: bool) -> None:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(content.encode() if isinstance(content, str) else content)
        if durable:
            file.flush()
            os.fsync(file.fileno())
