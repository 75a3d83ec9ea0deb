"""The page of a service: who may see it, what it shows, and that a browser shows it live."""

from __future__ import annotations

import asyncio
import json
import os
import re
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from hdpvfl_mq.app import cli
from hdpvfl_mq.app.demo.prepare import free_port
from hdpvfl_mq.runtime.page import PageFiles
from hdpvfl_mq.runtime.settings import dump_settings, fields_of, load_settings
from schemas.config import BrokerServiceSettings, PartyServiceSettings
from schemas.ids import COORDINATOR
from tests.integration.browser import PROGRAM, browser
from tests.integration.standing import Services, standing, until

HTML = Path(__file__).parents[2] / "hdpvfl_mq" / "runtime" / "page.html"
# Where a person who wants new pictures for docs/ has them put.
PICTURES = os.environ.get("HDPVFL_PICTURES")


def watched(services: Services, name: str) -> int:
    """Have a service serve its page; returns the port."""
    port, path = free_port(), services.demo.service(name)
    schema = BrokerServiceSettings if name == COORDINATOR else PartyServiceSettings
    fields = fields_of(load_settings(schema, path)) | {"watch": f"127.0.0.1:{port}"}
    path.write_text(dump_settings(schema(**fields)))
    return port


def address(services: Services, name: str, capsys) -> str:
    """What `hdpvfl page` prints."""
    assert cli.main(["page", "--settings", str(services.demo.service(name))]) == 0
    return capsys.readouterr().out.strip()


def get(url: str, **headers: str) -> tuple[int, dict[str, str], str]:
    request = urllib.request.Request(url, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status, dict(answer.headers), answer.read().decode()
    except urllib.error.HTTPError as refused:
        return refused.code, dict(refused.headers), refused.read().decode()


def first_event(url: str) -> dict:
    with urllib.request.urlopen(url, timeout=20) as answer:
        line = answer.readline().decode()
    return json.loads(line.removeprefix("data: "))


async def listening(url: str) -> None:
    for _ in range(500):
        try:
            await asyncio.to_thread(get, url)
        except OSError:
            await asyncio.sleep(0.02)
        else:
            return
    raise AssertionError(f"{url} never answers")


async def test_only_who_has_the_token_sees_anything(tmp_path, capsys):
    async with standing(tmp_path, start=False) as services:
        port = watched(services, "active")
        await services.start()
        url = address(services, "active", capsys)
        base, token = url.split("/?token=")
        await listening(url)

        async def code(path: str, **headers: str) -> int:
            return (await asyncio.to_thread(get, f"{base}{path}", **headers))[0]

        assert await code(f"/?token={token}") == 200
        for path in ("/", "/events", "/report/one", "/?token=", f"/?token={token[:-1]}0x"):
            assert await code(path) == 403
        assert await code(f"/?token={token}", Host=f"evil.example:{port}") == 403
        # Another site's page that resolves its name to this machine reads no run or party name.
        for path in ("/metrics", "/healthz", "/readyz"):
            assert await code(path) == 200
            assert await code(path, Host=f"evil.example:{port}") == 403
        for host in ("[::1]", "localhost", f"[::1]:{port}"):
            assert await code("/metrics", Host=host) == 200
        assert await code(f"/report/..%2F..%2Fsecret?token={token}") == 404
        assert await code(f"/report/unknown?token={token}") == 404
        _, headers, text = await asyncio.to_thread(get, url)
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert headers["referrer-policy"] == "no-referrer"
        nonce = re.search(r"'nonce-([\w-]+)'", policy)
        assert nonce
        assert f'<script nonce="{nonce[1]}">' in text
        state = services.folder / "state" / "active"
        assert (state / "page.token").stat().st_mode & 0o077 == 0
        assert PageFiles(state, Path(), "").token() == token


def test_the_page_fetches_nothing_and_writes_text_only():
    page = HTML.read_text()
    assert not re.search(r"https?://|@import|src=|url\(", page)
    for unsafe in ("innerHTML", "insertAdjacentHTML", "document.write", "eval(", "outerHTML"):
        assert unsafe not in page


async def test_the_news_are_the_status_and_reports_are_linked(tmp_path, capsys):
    async with standing(tmp_path, start=False) as services:
        watched(services, "active")
        await services.start()
        url = address(services, "active", capsys)
        base, token = url.split("/?token=")
        await listening(url)
        await services.propose("one")
        await services.phase("one", "over")
        events = f"{base}/events?token={token}"
        status = await asyncio.to_thread(first_event, events)
        assert status["runs"]["one"]["phase"] == "over"
        assert status["runs"]["one"]["epsilon_spent"] == status["budget"]["epsilon_spent"]
        assert status["budget"]["epsilon_spent"] > 0.9
        assert status["reports"] == []
        runs = services.demo.folder.parent
        assert await asyncio.to_thread(cli.main, ["report", "one", "--runs", str(runs)]) == 0
        assert (await asyncio.to_thread(first_event, events))["reports"] == ["one"]
        code, _, text = await asyncio.to_thread(get, f"{base}/report/one?token={token}")
        assert code == 200
        assert "What left active in one" in text


def test_a_service_without_a_page_says_how_to_have_one(tmp_path, capsys):
    settings = tmp_path / "broker.toml"
    plain = {"bind": "tcp://127.0.0.1:7700", "keys": "keys", "federations": [{"name": "spring"}]}
    settings.write_text(dump_settings(BrokerServiceSettings.model_validate_json(json.dumps(plain))))
    assert cli.main(["page", "--settings", str(settings)]) == 2
    assert 'watch = "127.0.0.1:7780"' in capsys.readouterr().err


@pytest.mark.skipif(PROGRAM is None, reason="no Chromium here: apt install chromium")
async def test_a_browser_sees_rounds_move_and_a_party_go(tmp_path, capsys):
    pictures = Path(PICTURES) if PICTURES else tmp_path
    world = standing(tmp_path / "run", start=False, epochs=400, batch=20)
    async with world as services, browser(tmp_path / "b") as page:
        watched(services, "active")
        watched(services, COORDINATOR)
        await services.start()
        at_active = address(services, "active", capsys)
        at_broker = address(services, COORDINATOR, capsys)
        await listening(at_active)
        await page.look(width=1000)
        await page.open(at_active)
        await page.until("document.querySelector('#state').textContent == 'running'")
        await services.propose("long")
        rounds = "Number((document.querySelector('[data-rounds]') || {dataset: {}}).dataset.rounds)"
        seen = await page.until(rounds)
        assert await page.until(f"{rounds} > {seen}")
        assert "own loss" in await page.value("document.body.innerText")
        await page.picture(pictures / "page-light.png")
        await page.look(width=500, dark=True)
        assert await page.value("document.documentElement.scrollWidth") <= 500
        dark = await page.value("getComputedStyle(document.body).backgroundColor")
        assert dark == "rgb(20, 24, 31)"
        await page.picture(pictures / "page-dark-500.png")
        await page.look(width=1000)
        await page.open(at_broker)
        card = "(document.querySelector('[data-party=\"passive-1\"]') || {innerText: ''}).innerText"
        await page.until(f"{card}.includes(', connected')")
        await services.stop("passive-1")
        await page.until(f"{card}.includes('not connected')")
        assert "own loss" not in await page.value("document.body.innerText")
        await page.picture(pictures / "page-broker-party-gone.png")
        await services.start("passive-1")
        await until(lambda: services.live["passive-1"].link.is_connected, "the party")
