"""One thread that watches the connections of all sockets of a process.

It owns the thread and when each socket's connections are looked at; it knows no limit. A thread for
each socket would cost a process that hosts many parties more than their work.
"""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass, field
from typing import Any, Protocol

import zmq

TICK_S = 0.05
IDLE_TICK_S = 0.2  # while little is on its way; CURVE opens less than the limit in that time
SHARE = 20.0  # looking at very many connections uses at most a twentieth of the time


class Watched(Protocol):
    """The connections of one socket."""

    @property
    def monitor(self) -> Any: ...

    def look(self, *, has_events: bool) -> bool:
        """Handle what has happened; whether much is on its way."""


@dataclass(eq=False)
class _Entry:
    watched: Watched
    look_at_s: float = 0.0
    left: threading.Event = field(default_factory=threading.Event)


class Watch:
    """The thread, and what it looks at; it ends when nothing is left.

    If it fails, its error is shown, and the next socket that is added starts it again for all.
    """

    def __init__(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._entries: dict[int, _Entry] = {}
        self._leaving: list[_Entry] = []
        self._thread: threading.Thread | None = None

    @property
    def is_of_this_process(self) -> bool:
        """Whether its thread is here: a forked process has none of its parent's."""
        return self._pid == os.getpid()

    def add(self, watched: Watched) -> None:
        """Look at these connections from now on."""
        with self._lock:
            self._entries[id(watched)] = _Entry(watched)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="connections", daemon=True)
                self._thread.start()

    def remove(self, watched: Watched) -> None:
        """Stop looking; after this returns, the thread uses nothing of these connections."""
        if not self.is_of_this_process:
            return
        with self._lock:
            entry = self._entries.pop(id(watched), None)
            if entry is None or self._thread is None:  # it has failed, and uses nothing
                return
            self._leaving.append(entry)
        entry.left.wait()

    def _present(self) -> list[_Entry]:
        """The entries of the next look; empty if the thread is to end."""
        with self._lock:
            for entry in self._leaving:
                entry.left.set()
            self._leaving.clear()
            if not self._entries:
                self._thread = None
            return list(self._entries.values())

    def _run(self) -> None:
        try:
            self._watch()
        finally:
            with self._lock:
                if self._thread is threading.current_thread():  # an error: nobody may wait for it
                    self._thread = None
                    for entry in self._leaving:
                        entry.left.set()
                    self._leaving.clear()

    def _watch(self) -> None:
        while present := self._present():
            poller = zmq.Poller()
            for entry in present:
                poller.register(entry.watched.monitor, zmq.POLLIN)
            try:
                ready = dict(poller.poll(int(TICK_S * 1000)))
            except zmq.ZMQError:  # a context has ended; the look at its socket says so
                ready = {entry.watched.monitor: zmq.POLLIN for entry in present}
            now = time.monotonic()
            for entry in present:
                self._look(entry, now, has_events=entry.watched.monitor in ready)

    def _look(self, entry: _Entry, now: float, *, has_events: bool) -> None:
        """Look at one socket if it is time; one that fails is left alone, and its error shown."""
        if not has_events and now < entry.look_at_s:
            return
        began_s = time.thread_time()
        try:
            is_busy = entry.watched.look(has_events=has_events)
        except Exception as broken:  # noqa: BLE001 - the other sockets stay watched
            with self._lock:
                self._entries.pop(id(entry.watched), None)
            raised = (type(broken), broken, broken.__traceback__, threading.current_thread())
            threading.excepthook(threading.ExceptHookArgs(raised))
        else:
            took_s = time.thread_time() - began_s
            entry.look_at_s = now + max(TICK_S if is_busy else IDLE_TICK_S, SHARE * took_s)


_watch = Watch()


def watch() -> Watch:
    """The watch of this process."""
    global _watch  # noqa: PLW0603 - a forked process needs one of its own
    if not _watch.is_of_this_process:
        _watch = Watch()
    return _watch
