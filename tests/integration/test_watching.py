"""What a service shows while it stands: endpoints, service manager, console line, logs of a run."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from pydantic import TypeAdapter, ValidationError

from hdpvfl_mq.app import cli
from hdpvfl_mq.app.demo.prepare import free_port
from hdpvfl_mq.errors import OperatorError
from hdpvfl_mq.runtime import logs
from hdpvfl_mq.runtime.in_short import service_in_short
from hdpvfl_mq.runtime.metrics import METRICS, Sample, render
from hdpvfl_mq.runtime.settings import dump_settings, fields_of, load_settings
from schemas.config import BrokerServiceSettings, Loopback, PartyServiceSettings
from schemas.ids import COORDINATOR
from tests.integration.standing import Services, standing, until

PAGE = Path(__file__).parents[2] / "docs" / "operations.md"


def change(services: Services, name: str, **changes) -> Path:
    path = services.demo.service(name)
    schema = BrokerServiceSettings if name == COORDINATOR else PartyServiceSettings
    settings = load_settings(schema, path)
    path.write_text(dump_settings(schema(**{**fields_of(settings), **changes})))
    return path


def get(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as refused:
        return refused.code, refused.read().decode()
    except OSError:
        return 0, ""


def metrics(text: str) -> dict[tuple, float]:
    return {
        (sample.name, tuple(sorted(sample.labels.values()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def test_endpoints_say_how_the_service_stands(tmp_path):
    async with standing(tmp_path, start=False) as services:
        ports = {name: free_port() for name in (COORDINATOR, "active")}
        for name, port in ports.items():
            change(services, name, watch=f"127.0.0.1:{port}")
        await services.start()

        async def ask(name: str, path: str) -> tuple[int, str]:
            return await asyncio.to_thread(get, ports[name], path)

        await until(lambda: services.live["active"].link.is_connected, "the connection")
        for name in ports:
            while (await ask(name, "/healthz"))[0] == 0:  # it is about to listen
                await asyncio.sleep(0.02)
        assert (await ask("active", "/healthz"))[0] == 200
        assert (await ask("active", "/readyz"))[0] == 200
        before = metrics((await ask("active", "/metrics"))[1])
        assert before["hdpvfl_epsilon_spent", ("breast",)] == 0.0
        await services.propose("one")
        await services.phase("one", "over")
        found = metrics((await ask("active", "/metrics"))[1])
        assert found["hdpvfl_epsilon_spent", ("breast",)] > 0.9
        spent, left = (found[f"hdpvfl_epsilon_{n}", ("breast",)] for n in ("spent", "left"))
        assert spent < found["hdpvfl_epsilon_cap", ("breast",)]
        assert 0.0 < left < before["hdpvfl_epsilon_left", ("breast",)]
        assert found["hdpvfl_runs", ("over",)] == 1
        assert found["hdpvfl_sent_bytes_total", ()] > before["hdpvfl_sent_bytes_total", ()]
        assert {name.removeprefix("hdpvfl_") for name, _ in found} <= set(METRICS)
        at_broker = metrics((await ask(COORDINATOR, "/metrics"))[1])
        assert at_broker["hdpvfl_members_connected", ("first.fed",)] == 2
        assert not any("epsilon" in name for name, _ in at_broker)
        assert (await ask(COORDINATOR, "/readyz"))[0] == 200
        assert (await ask("active", "/"))[0] == 403
        await services.stop(COORDINATOR)
        await until(lambda: not services.live["active"].link.is_connected, "the loss")
        code, text = await ask("active", "/readyz")
        assert code == 503
        assert json.loads(text)["trouble"]


async def test_a_port_in_use_is_said_at_the_start(tmp_path):
    async with standing(tmp_path, start=False) as services:
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            change(services, "active", watch=f"127.0.0.1:{taken.getsockname()[1]}")
            await services.start("active")
            with pytest.raises(OperatorError, match="choose another"):
                await asyncio.wait_for(services.tasks["active"], 20)
        del services.live["active"], services.tasks["active"]


@pytest.mark.parametrize("address", ["0.0.0.0:7780", "192.168.0.7:7780", "::1:7780", "7780"])
def test_only_loopback_may_be_watched(address):
    TypeAdapter(Loopback).validate_python("127.0.0.1:7780")
    with pytest.raises(ValidationError):
        TypeAdapter(Loopback).validate_python(address)


async def test_the_service_manager_hears_ready_status_and_watchdog(tmp_path, monkeypatch):
    manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    manager.bind(str(tmp_path / "notify"))
    manager.setblocking(False)
    monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
    heard = ""

    def told(word: str) -> bool:
        nonlocal heard
        try:
            while True:
                heard += manager.recv(4096).decode() + "\n"
        except BlockingIOError:
            return word in heard

    with manager:
        async with standing(tmp_path) as services:
            await until(lambda: told("READY=1"), "READY")
            await until(lambda: told("connected; epsilon 0 spent of"), "STATUS")
            await until(lambda: told("WATCHDOG=1"), "WATCHDOG")
            await services.stop("active")
            await until(lambda: told("STOPPING=1"), "STOPPING")


async def test_the_lines_of_a_run_are_read_back(tmp_path, capsys):
    async with standing(tmp_path) as services:
        await services.propose("one")
        await services.phase("one", "over")
        path = str(services.demo.service("active"))
    capsys.readouterr()
    assert cli.main(["logs", "one", "--settings", path, "--json"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {line["event"] for line in lines} >= {"run_opened", "run_over"}
    assert all(set(line) <= logs.FIELDS | {"time", "level", "event"} for line in lines)
    assert lines[-1]["epsilon"] > 0.9
    assert cli.main(["logs", "one", "--settings", path]) == 0
    assert "run_over" in capsys.readouterr().out
    assert cli.main(["logs", "two", "--settings", path]) == 2


async def test_one_line_says_where_a_service_stands(tmp_path):
    async with standing(tmp_path, start=False) as services:
        services.change_policy(proposals="ask")
        await services.start()
        await services.propose("one")
        await services.phase("one", "asked", parties=("passive-1",))
        line = service_in_short(await services.ask("passive-1", "status"))
        assert "one waits for 'hdpvfl approve one'" in line
        assert "epsilon 0 spent of" in line
        line = service_in_short(await services.ask("active", "status"))
        assert "one: proposed, waiting for passive-1" in line
        await services.stop("passive-1")
        broker = services.live[COORDINATOR]

        def here() -> list[str]:
            return broker.status()["federations"]["first.fed"]["connected"]

        await until(lambda: here() == ["active"], "the loss")
        line = service_in_short(await services.ask(COORDINATOR, "status"))
        assert "1 of 2 members connected, without passive-1" in line


def test_the_page_lists_every_metric_event_and_field():
    text = PAGE.read_text()
    listed = set(re.findall(r"`hdpvfl_([a-z_]+)", text))
    assert listed == set(METRICS)
    after = text.split("Events: ")[1].split("\n\n")[0]
    assert set(re.findall(r"`([a-z_]+)`", after)) == set(logs.EVENTS)
    after = text.split("Fields: ")[1].split("\n\n")[0]
    assert set(re.findall(r"`([a-z_]+)`", after)) == {*logs.FIELDS, "time", "level", "event"}


def test_a_metric_with_another_label_is_a_mistake():
    with pytest.raises(AssertionError, match="not on the list"):
        render([Sample("connected", 1.0, {"person": "c17"})])
    assert 'hdpvfl_epsilon_spent{dataset="a\\"b"} +Inf' in render(
        [Sample("epsilon_spent", float("inf"), {"dataset": 'a"b'})]
    )
