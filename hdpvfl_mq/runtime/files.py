"""Write files atomically, readable by their owner only.

It owns how such a file is written: it appears whole or not at all. It knows no content.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


def write_private(path: Path, content: bytes | str, *, durable: bool = False) -> None:
    """Replace a file atomically; `durable` waits until the content is on disk.

    Only one process may write a file, because the temporary file has the fixed path `aside_of`.
    """
    with writing_private(path, durable=durable) as file:
        file.write(_bytes(content))


@contextmanager
def writing_private(path: Path, *, durable: bool = False) -> Iterator[BinaryIO]:
    """A file to write in parts, which replaces `path` once it is complete; see `write_private`."""
    aside = aside_of(path)
    with _opened(aside, durable=durable) as file:
        yield file
    aside.replace(path)
    if durable:
        _sync_folder(path.parent)


def create_private(path: Path, content: bytes | str) -> None:
    """Write a new file and wait until it is on disk; FileExistsError if the file exists."""
    aside = path.with_name(f"{path.name}.{os.getpid()}.new")
    try:
        with _opened(aside, durable=True) as file:
            file.write(_bytes(content))
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


def _bytes(content: bytes | str) -> bytes:
    return content.encode() if isinstance(content, str) else content


@contextmanager
def _opened(path: Path, *, durable: bool) -> Iterator[BinaryIO]:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        yield file
        if durable:
            file.flush()
            os.fsync(file.fileno())
