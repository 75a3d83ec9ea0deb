"""One party's process: `python -m parties settings.toml` (what `hdpvfl party` runs).

With settings that name a run, the process ends with the run; with settings that name a federation,
it runs until it is stopped.
"""

from __future__ import annotations

import hdpvfl_mq.runtime.no_plugins  # noqa: F401 - before pydantic

# isort: split
import asyncio
import sys
from functools import partial
from pathlib import Path

from hdpvfl_mq.data.without_pandas import leave_pandas_out
from hdpvfl_mq.engine.threads import pin_threads
from hdpvfl_mq.errors import DataError, RefusedError, SettingsError
from hdpvfl_mq.runtime.hub import Hub
from hdpvfl_mq.runtime.keys import load_keys
from hdpvfl_mq.runtime.process import run_process, say_how_it_ended, stop_on_signals
from hdpvfl_mq.runtime.settings import fields_of, names
from hdpvfl_mq.runtime.status import Status
from hdpvfl_mq.runtime.transport import DealerLink
from parties.process.build import PartyFiles, load_assets, retire_secret
from parties.process.hosted import PartyRun
from parties.process.unable import refuse_again, tell
from schemas.config import PartyServiceSettings, PartySettings


def main(path: Path, *, as_json: bool = False) -> int:
    """Run one party's process; the exit code says how it ended."""
    _threads = pin_threads()
    leave_pandas_out()
    if names(path, "federation"):
        return run_process(PartyServiceSettings, path, partial(_stand, as_json=as_json))
    return run_process(PartySettings, path, _run, _failed)


def _failed(settings: PartySettings, reason: str) -> None:
    Status(PartyFiles(settings).run / "status.json").write({"phase": "stopped", "reason": reason})


async def _stand(settings: PartyServiceSettings, *, as_json: bool) -> str:
    from parties.process.commands import Commands  # noqa: PLC0415 - 1 MiB, and one run needs none
    from parties.process.service import PartyService  # noqa: PLC0415 - the same

    if as_json:
        settings = PartyServiceSettings(**{**fields_of(settings), "log": "json"})
    service = PartyService(settings)
    stop_on_signals(service)
    commands = Commands(service)
    return await service.run(commands.handle, commands.status)


async def _run(settings: PartySettings) -> str:
    keys = load_keys(Path(settings.keys))
    await refuse_again(settings, keys)
    retire_secret(settings)
    try:
        hosted = PartyRun(settings, load_assets(settings, keys), keys)
    except (DataError, SettingsError, RefusedError):  # a full disk or a lock can be waited out
        await tell(settings, keys)
        raise
    broker_key, peers = bytes.fromhex(settings.broker_curve_key), len(settings.peers)
    link = DealerLink(settings.broker, keys, broker_key, peers=peers)
    hub = Hub(link)
    run_link = hub.open(settings.run)
    stop_on_signals(hosted.connect(run_link))
    pump = run_link.watch(asyncio.create_task(hub.pump()))
    listening = run_link.watch(asyncio.create_task(link.listen()))
    try:
        outcome = await hosted.run()
    finally:
        pump.cancel()
        listening.cancel()
        link.close()
    say_how_it_ended(settings.party, outcome, hosted.reason)
    return outcome


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
