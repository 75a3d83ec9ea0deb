"""One thread watches the connections of all sockets of a process."""

from __future__ import annotations

import os
import threading
import time

import pytest
import zmq

from hdpvfl_mq.runtime import watch as module
from hdpvfl_mq.runtime.watch import IDLE_TICK_S, TICK_S, Watch


class Socket:
    """What the watch knows of the connections of a socket."""

    def __init__(self, *, is_busy=False, error=None):
        self._context = zmq.Context()
        self.monitor, self.other = (self._context.socket(zmq.PAIR) for _ in range(2))
        self.monitor.bind(f"inproc://{id(self)}")
        self.other.connect(f"inproc://{id(self)}")
        self.looks, self.events, self.is_busy, self.error = 0, 0, is_busy, error

    def look(self, *, has_events):
        self.looks += 1
        if self.error is not None:
            raise self.error
        while has_events and self.monitor.poll(0):
            self.monitor.recv()
            self.events += 1
        return self.is_busy

    def close(self):
        self._context.destroy(linger=0)


@pytest.fixture
def sockets():
    made = []

    def make(**given):
        made.append(Socket(**given))
        return made[-1]

    yield make
    for each in made:
        each.close()


def until(is_so):
    for _ in range(400):
        if is_so():
            return
        time.sleep(0.01)
    raise AssertionError("it did not happen within 4 s")


def threads():
    return [each for each in threading.enumerate() if each.name == "connections"]


def test_one_thread_watches_all_sockets_and_ends_with_the_last(sockets):
    """Bug: the threads of 64 parties in one process took a third of its processor time."""
    watch, before = Watch(), len(threads())
    made = [sockets() for _ in range(20)]
    for each in made:
        watch.add(each)
    until(lambda: all(each.looks for each in made))
    assert len(threads()) == before + 1
    for each in made:
        watch.remove(each)
    until(lambda: len(threads()) == before)
    watch.add(made[0])  # and begins again
    until(lambda: len(threads()) == before + 1)
    watch.remove(made[0])


def test_an_event_is_looked_at_at_once(sockets):
    watch, idle = Watch(), sockets()
    watch.add(idle)
    until(lambda: idle.looks)
    idle.other.send(b"")
    until(lambda: idle.events)
    watch.remove(idle)


def test_a_removed_socket_is_not_used_again(sockets):
    watch, first, second = Watch(), sockets(is_busy=True), sockets(is_busy=True)
    watch.add(first)
    watch.add(second)
    until(lambda: first.looks)
    watch.remove(first)
    looks, others = first.looks, second.looks
    first.monitor.close()
    until(lambda: second.looks > others + 2)
    assert first.looks == looks
    watch.remove(second)


def test_a_socket_with_much_on_its_way_is_looked_at_more_often(sockets):
    watch, idle, busy = Watch(), sockets(), sockets(is_busy=True)
    watch.add(idle)
    watch.add(busy)
    until(lambda: busy.looks >= 12)
    assert idle.looks <= 1 + 12 * TICK_S / IDLE_TICK_S
    watch.remove(idle)
    watch.remove(busy)


def test_one_that_fails_is_reported_and_the_others_stay_watched(sockets, monkeypatch):
    shown = []
    monkeypatch.setattr(threading, "excepthook", shown.append)
    watch, good = Watch(), sockets(is_busy=True)
    broken = sockets(error=OSError("broken"))
    watch.add(broken)
    watch.add(good)
    until(lambda: len(shown) == 1)
    looks = good.looks
    until(lambda: good.looks > looks + 2)
    watch.remove(broken)  # does not wait for ever
    watch.remove(good)


def test_a_forked_process_has_a_watch_of_its_own(monkeypatch, sockets):
    here, other = module.watch(), sockets()
    here.add(other)
    assert module.watch() is here
    monkeypatch.setattr(here, "_pid", os.getpid() + 1)
    here.remove(other)  # its thread is in the other process: nothing to wait for
    monkeypatch.setattr(module, "_watch", here)
    assert module.watch() is not here
    monkeypatch.undo()
    here.remove(other)


def test_a_thread_that_fails_leaves_nobody_waiting_and_starts_again(sockets, monkeypatch):
    """Bug: whoever closed a socket after that waited for ever."""
    shown = []
    monkeypatch.setattr(threading, "excepthook", shown.append)
    watch, first, second = Watch(), sockets(), sockets()
    watch.add(first)
    until(lambda: first.looks)
    monkeypatch.setattr(zmq, "Poller", lambda: 1 / 0)
    until(lambda: shown)
    monkeypatch.undo()
    looks = first.looks
    watch.add(second)  # the thread looks at both again
    until(lambda: second.looks and first.looks > looks)
    watch.remove(first)
    watch.remove(second)


def test_a_socket_leaves_a_watch_whose_thread_has_failed(sockets, monkeypatch):
    shown = []
    monkeypatch.setattr(threading, "excepthook", shown.append)
    watch, socket = Watch(), sockets()
    watch.add(socket)
    until(lambda: socket.looks)
    monkeypatch.setattr(zmq, "Poller", lambda: 1 / 0)
    until(lambda: shown)
    leaving = threading.Thread(target=watch.remove, args=(socket,), daemon=True)
    leaving.start()
    leaving.join(4.0)
    assert not leaving.is_alive()
