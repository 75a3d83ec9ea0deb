"""`hdpvfl doctor`: check everything a party's service needs, and print remedies.

It owns the list of checks; each prints one line: that it passes, or the fault and its remedy. The
command changes nothing and sends nothing but a handshake of the transport.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hdpvfl_mq import __version__
from hdpvfl_mq.app.commands.services import settings_file
from hdpvfl_mq.app.lines import say
from hdpvfl_mq.data.constants import resolve
from hdpvfl_mq.data.databases import spooled
from hdpvfl_mq.data.decoding import parsed_chunks
from hdpvfl_mq.data.parsed import reading
from hdpvfl_mq.data.readers import TableFile
from hdpvfl_mq.errors import (
    DataError,
    HdpvflError,
    IntegrityError,
    NetworkError,
    OperatorError,
)
from hdpvfl_mq.methods.recommend import delta_warning
from hdpvfl_mq.runtime import control
from hdpvfl_mq.runtime.diagnosis import probe, refusal
from hdpvfl_mq.runtime.keys import load_keys
from hdpvfl_mq.runtime.settings import load_settings
from hdpvfl_mq.runtime.transport import DealerLink
from parties.process.build import without_id_check
from schemas.config import PartyServiceSettings
from schemas.ids import OLDEST_VERSION
from schemas.policy import PartyPolicy

PATIENCE_S = 8.0
DISK_MIN_BYTES = 2**30
CLOCK_SLACK_S = 3600.0
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
    oldest, newest = OLDEST_VERSION, settings.speaks
    return f"{__version__}, speaks versions {oldest} to {newest} of the protocol"


def _clock(settings: PartyServiceSettings) -> str:
    """Only invitations expire, but a clock that is behind the files it dated is wrong anyway."""
    state = Path(settings.state) / settings.party
    newest = max((path.stat().st_mtime for path in state.glob("*")), default=0.0)
    behind_s = newest - time.time()
    if behind_s > CLOCK_SLACK_S:
        raise OperatorError(
            f"the clock is {behind_s / 3600:.1f} hours behind the files in {state}: set it, or an "
            "invitation may look open or expired when it is not"
        )
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())


def _keys(settings: PartyServiceSettings) -> str:
    load_keys(Path(settings.keys))
    return f"{settings.keys}, readable by their owner only"


def _policy(settings: PartyServiceSettings) -> str:
    policy = load_settings(PartyPolicy, Path(settings.policy))
    return f"{policy.dataset}: at most epsilon {policy.lifetime.epsilon:g} for ever"


def _data(settings: PartyServiceSettings) -> str:
    """Read all rows as a run would, so that all their faults are known beforehand."""
    if settings.data.file is None and settings.data.query is None:
        raise OperatorError("data.file: name the file with this party's rows")
    with tempfile.TemporaryDirectory() as folder:
        return _rows(settings, TableFile.of(spooled(settings.data, Path(folder))))


def _rows(settings: PartyServiceSettings, source: TableFile) -> str:
    place = settings.data.file or "query"
    try:
        how = reading(source, without_id_check(settings), settings.role)
        _, rows = resolve(parsed_chunks(how, source), how)
    except DataError as wrong:
        raise DataError(f"{place}: {wrong}") from None
    policy = load_settings(PartyPolicy, Path(settings.policy))
    warning = delta_warning(policy.lifetime.delta, rows)
    found = f"{place}, {rows:,} rows, {len(source.names)} columns"
    return f"{found}; policy: {warning}" if warning else found


def _disk(settings: PartyServiceSettings) -> str:
    free = shutil.disk_usage(Path(settings.state).absolute().parent).free
    if free < DISK_MIN_BYTES:
        raise OperatorError(f"only {free >> 20} MiB are free for {settings.state}: free disk space")
    return f"{free >> 30} GiB free"


def _permissions(settings: PartyServiceSettings) -> str:
    for folder in (Path(settings.state), Path(settings.runs)):
        there = next(
            path for path in (folder.absolute(), *folder.absolute().parents) if path.exists()
        )
        if not os.access(there, os.W_OK | os.X_OK):
            raise OperatorError(f"{there} cannot be written to: give it to the service's user")
    secret = Path(settings.state) / settings.party / "ledger.db"
    if secret.exists() and secret.stat().st_mode & 0o077:
        raise OperatorError(f"{secret} is open to other users: chmod 600 {secret}")
    return f"{settings.state} and {settings.runs} can be written to"


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
    answer = _asked(settings)
    if answer is None:
        return "is not running; start it with 'hdpvfl party'"
    if answer["trouble"]:
        raise NetworkError(answer["trouble"])
    return "runs"


def _roster(settings: PartyServiceSettings) -> str:
    answer = _asked(settings)
    if answer is None:
        return "known to the service only, which does not run"
    if answer["disputes"]:
        raise IntegrityError("; ".join(answer["disputes"]))
    waiting = sorted(answer["pairings"])
    if waiting:
        return f"compare words with {', '.join(waiting)}: see 'hdpvfl status'"
    return f"{len(answer['members'])} other members, all confirmed"


def _asked(settings: PartyServiceSettings) -> dict[str, Any] | None:
    """The status of the running service; None if it does not run."""
    folder = Path(settings.state) / settings.party
    try:
        return control.ask(folder, {"command": "status"}, what="hdpvfl party")
    except NetworkError:
        return None


CHECKS: dict[str, Check] = {
    "version": _version,
    "clock": _clock,
    "keys": _keys,
    "policy": _policy,
    "data": _data,
    "disk": _disk,
    "rights": _permissions,
    "network": _network,
    "broker": _handshake,
    "service": _service,
    "roster": _roster,
}
