"""The command's side of its processes: how Ctrl-C ends a demo, whatever else happens then."""

from __future__ import annotations

import signal
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from types import SimpleNamespace

import pytest

from hdpvfl_mq.app.demo.cluster import Cluster
from hdpvfl_mq.errors import OperatorError
from hdpvfl_mq.runtime.process import EXIT_STOPPED

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Service:
    """A service that handles Ctrl-C as the real ones do: at once, with its own exit code."""

    pid = 0

    def __init__(self) -> None:
        self.code: int | None = None

    def poll(self) -> int | None:
        return self.code

    def wait(self, timeout: float | None = None) -> int:
        return self.code or 0

    def terminate(self) -> None:
        self.code = EXIT_STOPPED


class Services:
    """A nursery of such services."""

    def __init__(self) -> None:
        self.all: list[Service] = []

    def start(self, *_: object) -> Service:
        self.all.append(Service())
        return self.all[-1]


@pytest.fixture(autouse=True)
def handlers():
    """The handlers of pytest, again after each test."""
    before = [signal.getsignal(number) for number in SIGNALS]
    yield
    for number, handler in zip(SIGNALS, before, strict=True):
        signal.signal(number, handler)


@pytest.fixture
def services():
    return Services()


@pytest.fixture
def cluster(services, tmp_path):
    demo = SimpleNamespace(
        folder=tmp_path, parties=("shop", "bank"), service=lambda name: tmp_path / f"{name}.toml"
    )
    return Cluster(demo, services)


def stop_all(services: Services, number: signal.Signals = signal.SIGINT) -> None:
    """What a terminal does: the signal reaches the command and its services."""
    for service in services.all:
        service.terminate()
    signal.raise_signal(number)


def run(cluster: Cluster, happens: Callable[[], None]) -> None:
    """A demo in which something happens before the command looks at its services."""
    with cluster:
        happens()
        cluster._check()


@pytest.mark.parametrize("number", SIGNALS)
def test_ctrl_c_that_was_ignored_at_the_start_ends_a_demo(cluster, services, number):
    """Bug: a shell's background job ignores Ctrl-C, but its services stopped; this was exit 2."""
    signal.signal(number, signal.SIG_IGN)
    with pytest.raises(KeyboardInterrupt):
        run(cluster, partial(stop_all, services, number))


def test_an_interrupt_that_was_dropped_elsewhere_ends_a_demo(cluster, services):
    """Finalizers and code in C may drop an interrupt; a service that stopped was then an error."""

    def dropped() -> None:
        with suppress(KeyboardInterrupt):
            stop_all(services)

    with pytest.raises(KeyboardInterrupt):
        run(cluster, dropped)


def test_an_interrupt_that_was_dropped_at_the_end_counts_too(cluster):
    with pytest.raises(KeyboardInterrupt), cluster, suppress(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_an_interrupt_that_became_another_error_ends_a_demo(cluster, services):
    """An import that is interrupted may raise an ImportError instead."""

    def interrupted_import() -> None:
        try:
            stop_all(services)
        except KeyboardInterrupt:
            raise ImportError("half a module") from None

    with pytest.raises(KeyboardInterrupt):
        run(cluster, interrupted_import)


def test_a_service_that_stops_alone_is_an_error(cluster, services):
    def stop_one() -> None:
        services.all[1].terminate()

    with pytest.raises(OperatorError, match="shop ended with code 130"):
        run(cluster, stop_one)
