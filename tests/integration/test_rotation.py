"""A member replaces its keys in a standing federation by one command; nobody else acts."""

from __future__ import annotations

import asyncio
import json
import signal

import pytest

from hdpvfl_mq.app.demo.prepare import free_port
from hdpvfl_mq.runtime.keys import load_keys, load_ring
from hdpvfl_mq.runtime.settings import load_settings
from hdpvfl_mq.runtime.transport import DealerLink
from schemas.config import PartyServiceSettings
from tests.integration.processes import wait_for
from tests.integration.test_joining import Host, write_rows


@pytest.fixture
def hosts(tmp_path):
    made = {name: Host(tmp_path / name) for name in ("broker", "bank", "shop")}
    broker, bank, shop = made.values()
    try:
        broker.type("init", "spring", "--bind", f"tcp://127.0.0.1:{free_port()}")
        broker.serve("broker")
        for host, name, more in ((bank, "bank", ("--label", "bought")), (shop, "shop", ())):
            write_rows(host, 2 + len(more), label=bool(more))
            line = broker.type("invite", name, "--role", "active" if more else "passive")
            host.type("join", line, "--data", "rows.csv", "--id", "customer", *more)
            policy = host.folder / "policy.toml"
            policy.write_text(policy.read_text().replace('"ask"', '"accept"'))
            host.serve("party")
        words = bank.words_for("shop")
        bank.type("confirm", "shop", *words)
        shop.type("confirm", "bank", *words)
        yield made
    finally:
        for host in made.values():
            host.end()


def train(hosts, run: str) -> None:
    hosts["bank"].type("train", "--rows-min", "100", "--run", run, "--epsilon", "0.3", "--no-wait")
    for name in ("bank", "shop"):
        wait_for(lambda n=name: outcome(hosts[n], run), f"{run} at {name}")
        assert outcome(hosts[name], run) == "completed"


def outcome(host: Host, run: str) -> str | None:
    return json.loads(host.type("runs", "--json"))["runs"].get(run, {}).get("outcome")


def restart(host: Host, word: str) -> None:
    host.services[-1].send_signal(signal.SIGKILL)
    host.services[-1].wait()
    host.serve(word)


def key_of_shop(host: Host, run: str) -> str:
    """The key that bank had pinned for shop when a run opened."""
    text = (host.folder / "runs" / run / "bank" / "settings.toml").read_text()
    place = text.index('party = "shop"')
    return text[place:].split('verify_key = "')[1].split('"')[0]


async def is_admitted(host: Host, keys) -> bool:
    settings = load_settings(PartyServiceSettings, host.folder / "party.toml")
    link = DealerLink(settings.broker, keys, bytes.fromhex(settings.broker_curve_key))
    try:
        for _ in range(200):
            if link.is_connected or link.trouble == "own key refused":
                return link.is_connected
            await asyncio.sleep(0.05)
        raise AssertionError(f"neither admitted nor refused: {link.trouble}")
    finally:
        link.close()


def test_a_member_replaces_its_keys_by_one_command(hosts):
    broker, bank, shop = hosts["broker"], hosts["bank"], hosts["shop"]
    train(hosts, "one")
    said = shop.type("rotate")
    assert "the broker has them" in said, said
    old, new = load_keys(shop.folder / "keys"), load_keys(shop.folder / "keys-2")
    assert 'keys = "keys-2"' in (shop.folder / "party.toml").read_text()
    wait_for(lambda: shop.asked("status")["connected"], "a connection with the new key")
    train(hosts, "two")  # ledger heads that bank co-signed for the old key still count
    assert key_of_shop(bank, "one") == old.verify_hex
    assert key_of_shop(bank, "two") == new.verify_hex
    assert bank.status()["disputes"] == shop.status()["disputes"] == []
    assert "keys_changed peer=shop" in (bank.folder / "service.log").read_text()
    assert not asyncio.run(is_admitted(shop, old))
    assert asyncio.run(is_admitted(shop, new))
    # Restarts replay journals that two keys have signed.
    for host, word in ((broker, "broker"), (shop, "party"), (bank, "party")):
        restart(host, word)
    # New keys made while the service is down take effect at its start.
    shop.services[-1].send_signal(signal.SIGKILL)
    shop.services[-1].wait()
    assert "when the service starts" in shop.type("rotate")
    shop.serve("party")
    wait_for(lambda: shop.asked("status")["keys"] == "known to the others", "the third keys")
    train(hosts, "three")
    third = load_keys(shop.folder / "keys-3")
    assert key_of_shop(bank, "three") == third.verify_hex
    assert len(load_ring(shop.folder / "keys-3")) == 3
    assert not asyncio.run(is_admitted(shop, new))
    shop.type("ledger", "verify", "state/shop/ledger.db")
    assert "none.toml" in shop.type("rotate", "--settings", "none.toml", code=2)
    path = shop.folder / "party.toml"
    path.write_text(path.read_text().replace('"keys-3"', '"$CREDENTIALS_DIRECTORY"'))
    assert "docs/operations/keys.md" in shop.type("rotate", code=2)
