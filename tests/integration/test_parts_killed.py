"""Real processes whose releases travel in parts, killed with SIGKILL during a transfer."""

from __future__ import annotations

import os
import signal

import pytest

from hdpvfl_mq.journal.store import Journal
from hdpvfl_mq.node import parts as exchange
from hdpvfl_mq.wire import parts
from hdpvfl_mq.wire.parts import is_in_parts
from schemas import tensor
from schemas.ids import COORDINATOR
from tests.integration.killing import Forks, assert_same, result_of, undisturbed
from tests.integration.processes import WAIT_S, Processes, processes

OPTIONS = {"passives": 1, "epochs": None, "batch": None}


@pytest.fixture(scope="module")
def calm(tmp_path_factory):
    """A run without kills; all runs here have releases of 59 parts, at most 4 on their way."""
    with pytest.MonkeyPatch.context() as small:
        small.setattr(Processes, "inherits", True)
        small.setattr(parts, "LARGE_BYTES", 256)
        small.setattr(parts, "PART_BYTES", 16)
        small.setattr(tensor, "BUFFER_ABOVE", 256)
        small.setattr(exchange, "WINDOW_PARTS", 4)
        yield undisturbed(tmp_path_factory.mktemp("calm"), **OPTIONS)


def kill_when_stored(real, monkeypatch, victim: str, *, at: str, call: int) -> None:
    """Kill a process once, when `at` has stored parts that many times."""
    keep, calls, died = Journal.keep_parts, [], real.folder / "died"

    def mortal(self, stored):
        keep(self, stored)
        calls.append(1)
        if len(calls) == call and self.path.parent.name == at and not died.exists():
            died.touch()
            os.kill(os.getpid() if victim == at else real.children[victim].pid, signal.SIGKILL)

    monkeypatch.setattr(Journal, "keep_parts", mortal)


@pytest.mark.parametrize(
    ("victim", "at", "call"),
    [
        ("active", "active", 8),  # its own parts in four calls, and some of the share's
        ("passive-1", "passive-1", 6),  # some of the residual's
        (COORDINATOR, "passive-1", 6),
        # Some of its own parts are stored, the record that lists them is not.
        pytest.param("active", "active", 1, marks=pytest.mark.slow),
        # The sender of parts, which its peer then asks for again.
        pytest.param("active", "passive-1", 6, marks=pytest.mark.slow),
        pytest.param("passive-1", "active", 8, marks=pytest.mark.slow),
        pytest.param(COORDINATOR, "active", 8, marks=pytest.mark.slow),
    ],
)
def test_a_process_killed_during_a_transfer_leaves_no_trace(
    victim, at, call, tmp_path, monkeypatch, calm
):
    with processes(tmp_path, secrets=True, **OPTIONS) as real:
        kill_when_stored(real, monkeypatch, victim, at=at, call=call)
        forks = Forks(real)
        try:
            forks.start(*sorted(real.names, key=lambda name: name == at))  # `at` knows the others
            assert forks.running.pop(victim).wait(WAIT_S) == -signal.SIGKILL
            forks.start(victim)
            forks.wait()
        finally:
            forks.stop()
        found = result_of(real)
    assert_same(found, calm)
    in_parts = {e.header.kind for e in found.evidence.envelopes if is_in_parts(e.frames)}
    assert in_parts == {"residual", "score_share"}
