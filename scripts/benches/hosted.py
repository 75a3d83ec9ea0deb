"""Several parties in one process, each with its own socket, journal and ledger.

    python -m scripts.benches.hosted SETTINGS...

It owns only the loop, which runs production parties. A machine with two cores gains nothing from 64
interpreters, and their start-up time would dominate the measurement.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import uvloop

from hdpvfl_mq.engine.threads import pin_threads
from hdpvfl_mq.runtime.settings import load_settings
from parties.__main__ import _run
from schemas.config import PartySettings

HELLO_S = 0.02  # to connect on loopback


async def _all(paths: list[Path]) -> list[str]:
    parties = []
    for path in paths:
        parties.append(asyncio.create_task(_run(load_settings(PartySettings, path))))
        # Let it connect and say hello before the next one reads its files: the broker cuts a
        # connection that says nothing, and dozens of parties read for longer than that.
        await asyncio.sleep(HELLO_S)
    return await asyncio.gather(*parties)


if __name__ == "__main__":
    _threads = pin_threads()
    outcomes = uvloop.run(_all([Path(each) for each in sys.argv[1:]]))
    sys.exit(0 if set(outcomes) == {"completed"} else 1)
