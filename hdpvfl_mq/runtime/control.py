"""A service's control socket: carries the operator's commands to a running process.

It owns the Unix socket in the state folder (mode 0600) and its one-line requests and answers in
JSON; it knows no command. Only root and the user who runs the service can open the socket.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from hdpvfl_mq.errors import HdpvflError, NetworkError, error_of

NAME = "control.sock"
LINE_MAX = 2**20
ANSWER_MAX = 64 * 2**20  # a status names every run of a federation that runs for years
PATH_MAX = 100  # characters in the path of a Unix socket; the system allows a few more
PATIENCE_S = 30.0
Answer = dict[str, Any]
Handler = Callable[[dict[str, Any]], Awaitable[Answer]]


@contextmanager
def _near(folder: Path) -> Iterator[str]:
    """The socket's path; one that is too long goes through the descriptor of its folder."""
    if len(os.fsencode(folder / NAME)) < PATH_MAX:
        yield str(folder / NAME)
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{descriptor}/{NAME}"
    finally:
        os.close(descriptor)


class Control:
    """Listens for commands: one line in, one line out, as often as the caller likes."""

    def __init__(self, folder: Path, handle: Handler) -> None:
        self._folder, self._handle = folder, handle
        self._server: asyncio.Server | None = None

    async def open(self) -> None:
        """Start to listen; replaces a socket that a dead process left."""
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        (self._folder / NAME).unlink(missing_ok=True)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        with _near(self._folder) as path:
            before = os.umask(0o177)
            try:
                listener.bind(path)
            finally:
                os.umask(before)
        self._server = await asyncio.start_unix_server(self._serve, sock=listener, limit=LINE_MAX)

    def close(self) -> None:
        """Stop listening."""
        if self._server is not None:
            self._server.close()
            (self._folder / NAME).unlink(missing_ok=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError, ValueError, asyncio.LimitOverrunError):
            while line := await reader.readline():
                answer = await self._answer(line)
                writer.write(json.dumps(answer).encode() + b"\n")
                await writer.drain()
        writer.close()

    async def _answer(self, line: bytes) -> Answer:
        try:
            asked = json.loads(line)
            if not isinstance(asked, dict):
                raise ValueError("no object")
        except ValueError:
            return {"error": "a command is one line of JSON", "exit": 2}
        try:
            return await self._handle(asked)
        except HdpvflError as refused:
            return {"error": str(refused), "exit": refused.exit_code}


class Caller:
    """A connection to a service, for one question after another.

    If no service answers, the NetworkError says that `what` starts one.
    """

    def __init__(self, folder: Path, *, what: str) -> None:
        self._silence = f"no service answers in {folder}: start it with '{what}'"
        self._line = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            with _near(folder) as path:
                self._line.settimeout(PATIENCE_S)
                self._line.connect(path)
        except OSError:
            self._line.close()
            raise NetworkError(self._silence) from None
        self._answers = self._line.makefile("rb")

    def __enter__(self) -> Caller:
        """This caller."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the connection."""
        self._answers.close()
        self._line.close()

    def ask(self, question: dict[str, Any]) -> Answer:
        """The service's answer; raises the error that it answers with."""
        try:
            self._line.sendall(json.dumps(question).encode() + b"\n")
            line = self._answers.readline(ANSWER_MAX)
            if not line.endswith(b"\n"):
                raise ValueError("the service's answer is cut off")
            answer: Answer = json.loads(line)
        except (OSError, ValueError):
            self.__exit__()
            raise NetworkError(self._silence) from None
        except BaseException:  # interrupted: the answer must not be taken for that of the next
            self.__exit__()
            raise
        if "error" in answer:
            raise error_of(answer.get("exit", 2), answer["error"])
        return answer


def ask(folder: Path, question: dict[str, Any], *, what: str) -> Answer:
    """A service's answer to one question; if none runs, NetworkError names what starts it."""
    with Caller(folder, what=what) as caller:
        return caller.ask(question)
