"""Each mistake of a connection has its own sentence, at the side that can mend it."""

from __future__ import annotations

import asyncio
import json
import math
import os
import re
import socket
import time
from pathlib import Path

import pytest

from hdpvfl_mq.app import cli
from hdpvfl_mq.app.commands import doctor
from hdpvfl_mq.app.demo.prepare import free_port
from hdpvfl_mq.runtime import diagnosis
from hdpvfl_mq.runtime.keys import make_keys
from hdpvfl_mq.runtime.settings import dump_settings, fields_of, load_settings
from parties.process import broker_link
from parties.process import service as party_service
from schemas.config import BrokerServiceSettings, PartyServiceSettings
from schemas.data import DataSettings
from schemas.ids import COORDINATOR
from tests.integration.standing import Services, standing, until


def change(services: Services, **changes) -> Path:
    path = services.demo.service("passive-1")
    settings = load_settings(PartyServiceSettings, path)
    path.write_text(dump_settings(PartyServiceSettings(**{**fields_of(settings), **changes})))
    return path


def other_keys(tmp_path: Path) -> dict:
    make_keys(tmp_path / "other")
    return {"keys": str(tmp_path / "other")}


def spoilt_rows(tmp_path: Path, settings: PartyServiceSettings) -> dict:
    """A data file with two faults, in two columns."""
    header, *rows = Path(settings.data.file).read_text().splitlines()
    cells = [row.split(",") for row in rows]
    cells[1][1], cells[2][2] = "text", ""
    path = tmp_path / "spoilt.csv"
    path.write_text("\n".join([header, *map(",".join, cells)]) + "\n")
    return {"data": DataSettings(**{**dict(settings.data), "file": str(path)})}


def wrong_broker_key(tmp_path: Path) -> dict:
    return {"broker_curve_key": make_keys(tmp_path / "other").curve_public.hex()}


MISTAKES = {
    "port": lambda p: {"broker": f"tcp://127.0.0.1:{free_port()}"},
    "broker's key": wrong_broker_key,
    "own key": other_keys,
    "federation": lambda p: {"federation": "autumn"},
}
# What a service waits for before it says the sentence; connecting to a port takes no time.
WAITS_S = {
    "name": broker_link.UNCONNECTED_S + diagnosis.PROBE_S,
    "port": broker_link.UNCONNECTED_S,
    "silence": broker_link.UNCONNECTED_S + diagnosis.PROBE_S,
    "broker's key": broker_link.UNCONNECTED_S,
    "own key": broker_link.UNCONNECTED_S,
    "federation": broker_link.UNANSWERED_S,
    "version": 0.0,  # the broker answers at once
}


def documented() -> dict[str, tuple[str, int, int]]:
    """The table of mistakes in docs/operations.md: sentence, seconds, exit code."""
    page = (Path(__file__).parents[2] / "docs" / "operations.md").read_text()
    rows = re.findall(r'^\| ([a-z\' ]+) \| "(.+)" \| (\d+) s \| (\d) \|$', page, flags=re.M)
    return {name: (sentence, int(seconds), int(code)) for name, sentence, seconds, code in rows}


def test_the_page_states_how_long_a_service_waits():
    stated = {name: seconds for name, (_, seconds, _) in documented().items()}
    assert stated == {n: math.ceil(w + broker_link.WATCH_S) for n, w in WAITS_S.items()}


@pytest.fixture
def sooner(monkeypatch):
    """A tenth of the waits; the test above holds their full length."""
    for name in ("WATCH_S", "UNCONNECTED_S", "UNANSWERED_S"):
        monkeypatch.setattr(broker_link, name, getattr(broker_link, name) / 10)


@pytest.mark.usefixtures("sooner")
@pytest.mark.parametrize("mistake", MISTAKES)
async def test_a_service_says_what_keeps_it_from_its_broker(tmp_path, mistake, capsys, monkeypatch):
    words, _, code = documented()[mistake]
    if mistake == "broker's key":  # nothing ends the doctor's handshake but its patience
        monkeypatch.setattr(doctor, "PATIENCE_S", 1.0)
    async with standing(tmp_path, start=False) as services:
        path = change(services, **MISTAKES[mistake](tmp_path))
        await services.start(COORDINATOR, "passive-1")
        party = services.live["passive-1"]
        assert isinstance(party, party_service.PartyService)
        assert await until(lambda: words in party.broker.trouble, mistake)
        found, said = await ask_doctor(path, capsys)
        assert found == code
        assert any(words in each["said"] for each in said.values() if not each["good"]), said


async def test_a_party_that_is_newer_than_its_broker_says_so(tmp_path, capsys):
    words, _, code = documented()["version"]
    async with standing(tmp_path, start=False) as services:
        path = services.demo.service(COORDINATOR)
        older = {**fields_of(load_settings(BrokerServiceSettings, path)), "speaks": 1}
        path.write_text(dump_settings(BrokerServiceSettings(**older)))
        await services.start(COORDINATOR, "passive-1")
        party = services.live["passive-1"]
        assert isinstance(party, party_service.PartyService)
        assert await until(lambda: words in party.broker.trouble, "version")
        found, said = await ask_doctor(services.demo.service("passive-1"), capsys)
        assert found == code
        assert words in said["service"]["said"]


async def test_the_doctor_finds_the_same(tmp_path, capsys):
    async with standing(tmp_path) as services:
        party = services.live["passive-1"]
        await until(lambda: party.link.is_connected, "the connection")
        path = services.demo.service("passive-1")
        code, said = await ask_doctor(path, capsys)
        assert code == 0, said
        assert all(check["good"] for check in said.values())
        assert "delta = 0.01 is more than 1 / rows" in said["data"]["said"]
        for wrong, name, words, expected in (
            (MISTAKES["port"](tmp_path), "network", "nobody listens", 4),
            (other_keys(tmp_path), "broker", "does not know this party's key", 4),
            ({"policy": str(tmp_path / "none.toml")}, "policy", "none.toml", 2),
            (spoilt_rows(tmp_path, party.settings), "data", "row 2: the cell is not a number", 2),
            (spoilt_rows(tmp_path, party.settings), "data", "row 3: the cell is empty", 2),
            ({"state": str(_from_tomorrow(tmp_path))}, "clock", "hours behind the files", 2),
            ({"state": str(_open_ledger(tmp_path))}, "rights", "chmod 600", 2),
        ):
            code, said = await ask_doctor(change(services, **wrong), capsys)
            assert code == expected
            assert words in said[name]["said"], said
            services.demo.service("passive-1").write_text(dump_settings(party.settings))


def _from_tomorrow(tmp_path: Path) -> Path:
    file = tmp_path / "tomorrow" / "passive-1" / "ledger.db"
    file.parent.mkdir(parents=True)
    file.touch(mode=0o600)
    os.utime(file, (time.time() + 86400,) * 2)
    return tmp_path / "tomorrow"


def _open_ledger(tmp_path: Path) -> Path:
    file = tmp_path / "open" / "passive-1" / "ledger.db"
    file.parent.mkdir(parents=True)
    file.touch()
    file.chmod(0o644)
    return tmp_path / "open"


async def ask_doctor(path: Path, capsys) -> tuple[int, dict]:
    code = await asyncio.to_thread(cli.main, ["doctor", "--settings", str(path), "--json"])
    checks = json.loads(capsys.readouterr().out.strip().splitlines()[-1])
    return code, {check["check"]: check for check in checks}


def test_a_name_that_is_not_found_has_its_own_sentence(monkeypatch):
    monkeypatch.setattr(diagnosis, "PROBE_S", 0.5)
    assert documented()["name"][0] in diagnosis.probe("tcp://no-such-host.invalid:7700")


def test_silence_has_its_own_sentence(monkeypatch):
    monkeypatch.setattr(diagnosis, "PROBE_S", 0.2)
    with socket.socket() as deaf:  # full, so further connections get no answer
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(0)
        endpoint = deaf.getsockname()
        callers = []
        for _ in range(4):
            caller = socket.socket()
            caller.setblocking(False)
            caller.connect_ex(endpoint)
            callers.append(caller)
        assert documented()["silence"][0] in diagnosis.probe(f"tcp://127.0.0.1:{endpoint[1]}")
        for caller in callers:
            caller.close()
