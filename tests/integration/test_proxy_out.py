"""A party behind a SOCKS5 proxy; keys that a service manager hands over."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path

import pytest

from hdpvfl_mq.app.commands import doctor
from hdpvfl_mq.errors import NetworkError, OperatorError
from hdpvfl_mq.runtime.keys import load_keys, make_keys
from schemas.config import PartyServiceSettings
from tests.integration.standing import standing
from tests.integration.test_watching import change


class Socks:
    """A SOCKS5 proxy without passwords."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def open(self) -> int:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return int(self._server.sockets[0].getsockname()[1])

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            _, methods = await reader.readexactly(2)
            await reader.readexactly(methods)
            writer.write(b"\x05\x00")
            _, _, _, kind = await reader.readexactly(4)
            size = 4 if kind == 1 else (await reader.readexactly(1))[0]
            host = await reader.readexactly(size)
            name = ".".join(map(str, host)) if kind == 1 else host.decode()
            port = int.from_bytes(await reader.readexactly(2), "big")
            self.asked.append(f"{name}:{port}")
            inner, out = await asyncio.open_connection(name, port)
            writer.write(b"\x05\x00\x00\x01" + bytes(6))
            await asyncio.gather(_copy(reader, out), _copy(inner, writer))
        writer.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while chunk := await reader.read(65536):
            writer.write(chunk)
            await writer.drain()
    writer.close()


async def test_a_party_reaches_its_broker_through_a_proxy(tmp_path):
    socks = Socks()
    port = await socks.open()
    async with standing(tmp_path, start=False) as services:
        change(services, "passive-1", proxy=f"127.0.0.1:{port}")
        await services.start()
        await services.propose("one")
        seen = await services.phase("one", "over")
        assert {each["outcome"] for each in seen.values()} == {"completed"}
        broker = services.live["passive-1"].settings.broker.removeprefix("tcp://")
        assert set(socks.asked) == {broker}


def test_the_doctor_looks_at_the_proxy(tmp_path):
    fields = {"proxy": "127.0.0.1:9", "broker": "tcp://broker.invalid:7700"}
    settings = PartyServiceSettings.model_construct(**fields)
    with pytest.raises(NetworkError, match=r"127\.0\.0\.1 refuses port 9"):
        doctor.CHECKS["network"](settings)


def test_keys_may_come_from_the_service_manager(tmp_path, monkeypatch):
    made = make_keys(tmp_path / "keys")
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path / "keys"))
    (tmp_path / "keys" / "sign.key").chmod(0o440)  # as an access list for the user shows
    handed = Path("$CREDENTIALS_DIRECTORY")
    assert load_keys(handed) == made
    (tmp_path / "keys" / "sign.key").chmod(0o444)
    with pytest.raises(OperatorError, match="can be read by others"):
        load_keys(handed)
    monkeypatch.delenv("CREDENTIALS_DIRECTORY")
    with pytest.raises(OperatorError, match="cannot read"):
        load_keys(handed)
