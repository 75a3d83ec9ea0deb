"""Two versions of the protocol in one federation: one process is older than the others."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from broker import agreed_runs
from broker.process.service import BrokerService
from hdpvfl_mq.app.commands.audit import AuditOptions, gather
from hdpvfl_mq.app.commands.replay import ReplayOptions, replay
from hdpvfl_mq.app.scoring_manifest import manifest_of
from hdpvfl_mq.audit.audit import audit, exit_code
from hdpvfl_mq.journal import chain
from hdpvfl_mq.runtime.settings import dump_settings, fields_of, load_settings
from hdpvfl_mq.wire.codec import Frames, decode_header
from parties.__main__ import main as party_main
from schemas.config import (
    AlignmentSpec,
    BrokerServiceSettings,
    PartyServiceSettings,
    RunManifest,
)
from schemas.envelope import PROTOCOL_VERSION
from schemas.ids import COORDINATOR
from schemas.records import EnvelopeReceived, EnvelopeSent
from tests import version_1
from tests.integration.forked import Served
from tests.integration.processes import ROOT, environment
from tests.integration.standing import Services, standing, until

OLD = "passive-1"
VERIFIER = ROOT / "scripts" / "verify_journal"


def speak(services: Services, name: str, version: int) -> None:
    """Rewrite a service's settings."""
    schema = BrokerServiceSettings if name == COORDINATOR else PartyServiceSettings
    path = services.demo.service(name)
    fields = fields_of(load_settings(schema, path))
    path.write_text(dump_settings(schema(**{**fields, "speaks": version})))


def process(services: Services, name: str) -> Served:
    """A party's service as a process of its own."""
    return Served(
        partial(party_main, services.demo.service(name)),
        out=services.folder / f"{name}.log",
        cwd=services.folder,
        environment=environment(),
    )


def envelopes(path: Path) -> list[Frames]:
    """Everything that a journal has sent and received; its process may still have it open."""
    found = []
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as stored:
        for index, record in stored.execute("SELECT idx, record FROM records ORDER BY idx"):
            read = chain.decode(record, index)
            given = (read.input,) if isinstance(read.input, EnvelopeReceived) else ()
            sent = [each for each in read.effects if isinstance(each, EnvelopeSent)]
            found += [each.frames for each in (*given, *sent)]
    return found


def of_run(folder: Path, run: str, party: str) -> list[Frames]:
    return envelopes(folder / "runs" / run / party / "journal.db")


def sound(folder: Path, run: str) -> None:
    """The run's journals pass the audit, and every party's comes out of a replay the same."""
    verdicts = audit(gather(AuditOptions(folder / "runs" / run, ledgers=folder / "state")))
    assert exit_code(verdicts) == 0, [v for v in verdicts if not v.passed]


async def finished(services: Services, run: str) -> None:
    others = tuple(p for p in services.demo.parties if p in services.live)
    seen = await services.phase(run, "over", "refused", parties=others)
    assert {each["outcome"] for each in seen.values()} == {"completed"}, seen


async def test_an_older_process_takes_part_until_it_is_upgraded(tmp_path):
    async with standing(tmp_path, start=False, passives=2) as services:
        services.change_policy(scoring="disclosed", rows_min=2)
        speak(services, OLD, 1)
        old = process(services, OLD)
        try:
            await services.start(COORDINATOR, "active", "passive-2")
            active = services.live["active"]
            await services.propose("one")
            await finished(services, "one")
            known = active.belonging.runs["one"]
            assert known.manifest.wire == 1
            kinds = {version_1.read(each) for each in of_run(tmp_path, "one", OLD)}
            assert {"hello", "run_offer", "align_block", "agreement", "score_share"} <= kinds
            sound(tmp_path, "one")
            await predict(services, tmp_path, "one", "scores")
            old.send_signal(15)
            assert await asyncio.to_thread(old.wait, 60) == 130
        finally:
            old.kill()
        name = services.demo.federation
        stream = envelopes(tmp_path / "state" / OLD / "federations" / f"{name}.db")
        assert {"member_hello", "run_proposal", "run_news"} <= {version_1.read(e) for e in stream}

        speak(services, OLD, PROTOCOL_VERSION)
        await services.start(OLD)
        await services.propose("two")
        await finished(services, "two")
        for party in services.demo.parties:
            stated = {decode_header(each).version for each in of_run(tmp_path, "two", party)}
            assert stated == {PROTOCOL_VERSION}
        with pytest.raises(ValueError, match="no header of version 1"):
            version_1.read(of_run(tmp_path, "two", OLD)[0])
        sound(tmp_path, "two")
    for run in ("one", "two"):  # what either version has written is replayed by this one
        assert replay(ReplayOptions(tmp_path / "runs" / run, party=OLD)) == 0
        members = tmp_path / "runs" / run / "active" / "members.toml"
        words = [tmp_path / "runs" / run, tmp_path / "state", members]
        assert subprocess.run([sys.executable, VERIFIER, *words], check=False).returncode == 0


async def predict(services: Services, folder: Path, model: str, run: str) -> None:
    fields = {**services.demo.manifest.model_dump(), "run": model}
    made = manifest_of(RunManifest.model_validate(fields), run, budget=None, exact=True)
    alignment = AlignmentSpec(**{**dict(made.alignment), "rows_min": 2})
    manifest = RunManifest(**{**dict(made), "alignment": alignment})
    plain = json.loads(manifest.model_dump_json())
    rows, out = services.demo.rows("active", "train"), folder / "scores.csv"
    await services.ask("active", "propose", manifest=plain, rows=str(rows), out=str(out))
    await finished(services, run)
    assert len(out.read_text().splitlines()) > 300
    assert {version_1.read(each) for each in of_run(folder, run, OLD)}


async def test_a_broker_that_understates_versions_is_found_out(tmp_path, monkeypatch):
    monkeypatch.setattr(agreed_runs, "_in_common_version", lambda state, manifest: manifest)
    async with standing(tmp_path) as services:
        await services.propose("one")
        seen = await services.phase("one", "over")
        assert {each["outcome"] for each in seen.values()} == {"mismatch"}
        assert all("older version of the protocol" in each["reason"] for each in seen.values())
        for party in services.demo.parties:
            budget = (await services.ask(party, "status"))["budget"]
            assert budget["epsilon_spent"] == 0.0


async def test_a_party_is_told_that_its_broker_is_older(tmp_path):
    async with standing(tmp_path, start=False) as services:
        speak(services, COORDINATOR, 1)
        await services.start()
        party = services.live[OLD]
        words = "upgrade the broker first, or set speaks = 1 in party.toml"
        await until(lambda: words in party.broker.trouble, words)
        assert any("upgrade this side first" in r for r in refusals(services))
        await services.stop(OLD)
        speak(services, OLD, 1)  # the remedy
        await services.start(OLD)
        broker = services.live[COORDINATOR]
        await until(lambda: OLD in connected(broker, services.demo.federation), "the connection")


async def test_a_party_that_is_too_old_for_its_broker_is_told_so(tmp_path):
    async with standing(tmp_path, start=False) as services:
        speak(services, OLD, 1)
        await services.start(COORDINATOR)
        federation = services.live[COORDINATOR].federations[services.demo.federation]
        node = federation.node  # a broker two versions later
        node.identity = replace(node.identity, versions=(2, 3))
        await services.start(OLD)
        party = services.live[OLD]
        words = "versions 2 to 3 of the protocol and this party 1: upgrade this party"
        await until(lambda: words in party.broker.trouble, words)
        assert any("upgrade the sender" in reason for reason in refusals(services))


def connected(broker: BrokerService, federation: str) -> list[str]:
    return broker.status()["federations"][federation]["connected"]


def refusals(services: Services) -> list[str]:
    broker = services.live[COORDINATOR]
    node = broker.federations[services.demo.federation].node
    return [reason for _, reason in node._journal.refusals()]
