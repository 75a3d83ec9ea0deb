"""One party's production process with a clock: when each round began and ended.

It owns the timestamps only: `python -m parties` with its runner's turns timed. The clock is the
machine's monotonic one, so that processes can be compared.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import parties.__main__ as party
from hdpvfl_mq.runtime.runner import Runner

STAMPS: list[tuple[float, float, str, int]] = []  # before and after a turn, phase, rounds done


class TimedRunner(Runner):
    """Notes every turn that changes phase or round."""

    async def _turn(self, arrivals: list[tuple[bytes, ...]], now: float) -> None:
        state: Any = self._node.state
        before, was = time.monotonic(), (state.phase, state.round)
        await super()._turn(arrivals, now)
        state = self._node.state
        if (state.phase, state.round) != was:
            STAMPS.append((before, time.monotonic(), state.phase, state.round))


def main(settings: Path) -> int:
    """Run the party, then write its stamps next to its settings."""
    party.Runner = TimedRunner  # type: ignore[attr-defined]
    code = party.main(settings)
    settings.with_suffix(".stamps.json").write_text(json.dumps(STAMPS))
    return code


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
