"""The broker's process: `python -m broker settings.toml` (what `hdpvfl broker` runs)."""

from __future__ import annotations

import hdpvfl_mq.runtime.no_plugins  # noqa: F401 - before pydantic

# isort: split
import resource
import sys
from functools import partial
from pathlib import Path

from broker.process.service import BrokerService
from broker.process.switchboard import build_service
from hdpvfl_mq.runtime.process import run_process, say_how_it_ended, stop_on_signals
from hdpvfl_mq.runtime.settings import fields_of, names
from schemas.config import BrokerServiceSettings, BrokerSettings

# ZeroMQ does not limit the size of a multipart message; this limits the process's memory.
MEMORY_MAX_BYTES = 8 * 2**30


def main(path: Path, *, as_json: bool = False) -> int:
    """Run the broker until its run ends, or until it is stopped if it hosts federations."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_MAX_BYTES, resource.RLIM_INFINITY))
    if names(path, "federations"):
        return run_process(BrokerServiceSettings, path, partial(_stand, as_json=as_json))
    return run_process(BrokerSettings, path, _run)


async def _stand(settings: BrokerServiceSettings, *, as_json: bool) -> str:
    if as_json:
        settings = BrokerServiceSettings(**{**fields_of(settings), "log": "json"})
    service = BrokerService(settings)
    stop_on_signals(service)
    return await service.run()


async def _run(settings: BrokerSettings) -> str:
    service = build_service(settings)
    stop_on_signals(service.runner)
    outcome = await service.run()
    say_how_it_ended("coordinator", outcome, service.node.state.reason)
    return outcome


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
