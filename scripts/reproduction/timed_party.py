"""One party's production process that records when each round began and ended.

It owns only the timestamps: it is `python -m parties` with its runner's turns timed. The clock is
the machine's monotonic clock, so that processes can be compared; computing time is the process's
own.
"""

from __future__ import annotations

import json
import time
from pathlib import Path

from hdpvfl_mq.node.node import Node
from hdpvfl_mq.runtime.runner import Runner
from parties.__main__ import main as party_main
from parties.phases import training_of
from parties.process import hosted

# Clock before and after a turn, computing time before and after the turn, phase, rounds done.
STAMPS: list[tuple[float, float, float, float, str, int]] = []


class TimedRunner(Runner):
    """Records every turn that changes phase or round."""

    async def _turn(self, arrivals: list[tuple[bytes, ...]], at: float) -> None:
        was = _place(self._node)
        before, computed = time.monotonic(), time.process_time()
        await super()._turn(arrivals, at)
        if (place := _place(self._node)) != was:
            now, done = time.monotonic(), time.process_time()
            STAMPS.append((before, now, computed, done, *place))


def _place(node: Node) -> tuple[str, int]:
    """The phase a party is in, and the rounds it has done."""
    training = training_of(node.state)
    return type(node.state).__name__.lower(), training.round if training else 0


def main(settings: Path) -> int:
    """Run the party, then write its timestamps next to its settings."""
    vars(hosted)["Runner"] = TimedRunner
    code = party_main(settings)
    settings.with_suffix(".stamps.json").write_text(json.dumps(STAMPS))
    return code
