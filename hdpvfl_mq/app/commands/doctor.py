"""`hdpvfl doctor`: check everything a party's service needs, and print remedies.

It owns the list of checks; each prints one line: that it passes, or the fault and its remedy. The
command changes nothing and sends nothing but a handshake of the transport.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
from collections.abc import Callable
from pathlib import Path

from hdpvfl_mq import __version__
from hdpvfl_mq.app.commands.services import settings_file
from hdpvfl_mq.app.lines import say
from hdpvfl_mq.data.constants import resolve
from hdpvfl_mq.data.parsed import reading
from hdpvfl_mq.data.readers import TableFile
from hdpvfl_mq.errors import DataError, HdpvflError, NetworkError, OperatorError
from hdpvfl_mq.runtime import control
from hdpvfl_mq.runtime.diagnosis import probe, refusal
from hdpvfl_mq.runtime.keys import load_keys
from hdpvfl_mq.runtime.settings import load_settings
from hdpvfl_mq.runtime.transport import DealerLink
from parties.process.build import without_id_check
from schemas.config import PartyPolicy, PartyServiceSettings

PATIENCE_S = 8.0
DISK_MIN_BYTES = 2**30
Check = Callable[[PartyServiceSettings], str]


def doctor(options: argparse.Namespace) -> int:
    """Run every check; returns the exit code of the first that fails."""
    path = settings_file(options.settings)
    settings = load_settings(PartyServiceSettings, path)
    code, found = 0, []
    for name, check in CHECKS.items():
        try:
            said, is_good = check(settings), True
        except HdpvflError as wrong:
            said, is_good = str(wrong), False
            code = code or wrong.exit_code
        found.append({"check": name, "good": is_good, "said": said})
        if not options.json:
            say(f"{'good' if is_good else 'BAD '}  {name:8} {said}")
    if options.json:
        print(json.dumps(found))
    return code


def _version(settings: PartyServiceSettings) -> str:
    return __version__


def _keys(settings: PartyServiceSettings) -> str:
    load_keys(Path(settings.keys))
    return f"{settings.keys}, readable by their owner only"


def _policy(settings: PartyServiceSettings) -> str:
    policy = load_settings(PartyPolicy, Path(settings.policy))
    return f"{policy.dataset}: at most epsilon {policy.lifetime.epsilon:g} for ever"


def _data(settings: PartyServiceSettings) -> str:
    """Read the whole file as a run would, so that all its faults are known beforehand."""
    if settings.data.query is not None:
        return "rows come from a query, which is not tried here"
    if settings.data.file is None:
        raise OperatorError("data.file: name the file with this party's rows")
    source = TableFile.of(settings.data)
    try:
        how = reading(source, without_id_check(settings), settings.role)
        _, rows = resolve(how.chunks(source), how)
    except DataError as wrong:
        raise DataError(f"{settings.data.file}: {wrong}") from None
    return f"{settings.data.file}, {rows:,} rows, {len(source.names)} columns"


def _disk(settings: PartyServiceSettings) -> str:
    free = shutil.disk_usage(Path(settings.state).absolute().parent).free
    if free < DISK_MIN_BYTES:
        raise OperatorError(f"{free >> 20} MiB are free for {settings.state}: make room")
    return f"{free >> 30} GiB free"


def _network(settings: PartyServiceSettings) -> str:
    way = f"tcp://{settings.proxy}" if settings.proxy else settings.broker
    if wrong := probe(way):
        raise NetworkError(wrong)
    return f"{way} can be reached"


def _handshake(settings: PartyServiceSettings) -> str:
    _network(settings)  # where nobody listens, nobody refuses a key, however long one waits
    trouble = asyncio.run(_greet(settings))
    if trouble is not None:
        raise NetworkError(refusal(trouble, settings.federation))
    return "the broker has the key of the settings, and knows this party's"


async def _greet(settings: PartyServiceSettings) -> str | None:
    """The error of the handshake with the broker; empty if it succeeds."""
    broker_key = bytes.fromhex(settings.broker_curve_key)
    keys = load_keys(Path(settings.keys))
    link = DealerLink(settings.broker, keys, broker_key, proxy=settings.proxy)
    loop = asyncio.get_running_loop()
    until_s = loop.time() + PATIENCE_S
    try:
        while loop.time() < until_s:
            if link.is_connected:
                return None
            if link.trouble == "own key refused":
                break
            await asyncio.sleep(0.05)
        return link.trouble
    finally:
        link.close()


def _service(settings: PartyServiceSettings) -> str:
    folder = Path(settings.state) / settings.party
    try:
        answer = control.ask(folder, {"command": "status"}, what="hdpvfl party")
    except NetworkError:
        return "does not run; 'hdpvfl party' starts it"
    if answer["trouble"]:
        raise NetworkError(answer["trouble"])
    return "runs"


CHECKS: dict[str, Check] = {
    "version": _version,
    "keys": _keys,
    "policy": _policy,
    "data": _data,
    "disk": _disk,
    "network": _network,
    "broker": _handshake,
    "service": _service,
}
