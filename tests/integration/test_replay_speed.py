"""A run of 1,000 rounds is replayed at least three times as fast as it ran."""

from __future__ import annotations

import json
import time

import pytest

from hdpvfl_mq.app.refold import open_replay
from tests.integration.killing import Forks
from tests.integration.processes import processes

TIMES_FASTER = 3.0


@pytest.mark.slow
def test_1000_rounds_replay_three_times_as_fast(tmp_path):
    with processes(tmp_path, secrets=True, passives=2, epochs=50, batch=24) as real:
        Forks(real).to_the_end()
        for party in real.demo.parties:
            status = json.loads((real.demo.folder / party / "status.json").read_text())
            assert status["round"] == 1000
            opened = open_replay(real.demo.folder, party)
            began = time.monotonic()
            steps = sum(1 for _ in opened.steps())
            took_s = time.monotonic() - began
            assert steps == len(opened.transcript.rows)
            assert took_s * TIMES_FASTER <= status["training_s"], (party, took_s, status)
