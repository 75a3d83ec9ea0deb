"""Services that stand: many runs in one process, agreed on, picked up again, kept apart."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from hdpvfl_mq.app.commands.audit import AuditOptions, gather
from hdpvfl_mq.audit.audit import audit, exit_code
from hdpvfl_mq.errors import NetworkError, OperatorError
from hdpvfl_mq.node.parts import LATE_FROM, _Incoming
from hdpvfl_mq.runtime import control
from hdpvfl_mq.wire.codec import encode_header
from hdpvfl_mq.wire.parts import PartList
from schemas.envelope import NO_PARENT, Delivery, Header
from schemas.ids import COORDINATOR
from tests.integration.standing import standing, until
from tests.samples import example


async def test_runs_in_turn_and_at_once_share_one_ledger(tmp_path):
    async with standing(tmp_path) as services:
        await services.propose("one")
        await services.phase("one", "over")
        await services.propose("two")
        await services.propose("three", seed=5)
        for run in ("two", "three"):
            seen = await services.phase(run, "over")
            assert {each["outcome"] for each in seen.values()} == {"completed"}
        assert any(services.model("active", "two"))
        status = await services.ask("active", "status")
        assert status["connected"]
        assert status["budget"]["epsilon_spent"] > 1.5  # three runs of epsilon 1 on one account
        for run in ("one", "two", "three"):
            evidence = gather(AuditOptions(tmp_path / "runs" / run, ledgers=tmp_path / "state"))
            verdicts = audit(evidence)
            assert exit_code(verdicts) == 0, [v for v in verdicts if not v.passed]


async def test_a_service_that_starts_again_picks_up_every_open_run(tmp_path):
    long = {"guarantee": "none", "epochs": 150}
    async with standing(tmp_path, **long) as services:
        await services.propose("one")
        await services.propose("two")
        for name in (COORDINATOR, "passive-1", "active"):
            await until(lambda: services.run("active", "two").get("round", 0) > 3, "rounds")
            before = {r: services.run("active", r).get("round", 0) for r in ("one", "two")}
            assert max(before.values()) < 150, "the run was too short to be disturbed"
            await services.stop(name)
            await services.start(name)
        for run in ("one", "two"):
            seen = await services.phase(run, "over")
            assert {each["outcome"] for each in seen.values()} == {"completed"}
        # The same manifest but for its name: the same weights, whoever was away.
        assert services.model("passive-1", "one") == services.model("passive-1", "two")
        status = json.loads((tmp_path / "runs/one/active/status.json").read_text())
        assert status["epoch"] == 2


async def test_the_operator_answers_what_the_policy_leaves_open(tmp_path):
    async with standing(tmp_path, start=False) as services:
        services.change_policy(proposals="ask")
        await services.start()
        await services.propose("one")
        await services.phase("one", "asked", parties=("passive-1",))
        assert services.run("active", "one")["waiting_for"] == ["passive-1"]
        asked = (await services.ask("passive-1", "requests"))["requests"]
        assert asked["one"]["epsilon"] == 1.0
        await services.stop("passive-1")  # the question outlives the process
        await services.start("passive-1")
        await services.phase("one", "asked", parties=("passive-1",))
        await services.ask("passive-1", "answer", run="one", accepted=True)
        await services.phase("one", "over")

        await services.propose("two")
        await services.phase("two", "asked", parties=("passive-1",))
        await services.ask("passive-1", "answer", run="two", accepted=False, reason="not today")
        seen = await services.phase("two", "refused")
        assert seen["active"]["reason"] == "passive-1: not today"
        with pytest.raises(OperatorError, match="waits for no answer"):
            await services.ask("passive-1", "answer", run="two", accepted=True)
        assert not (tmp_path / "runs" / "two").exists()


async def test_the_policy_refuses_before_anybody_is_asked(tmp_path):
    async with standing(tmp_path, start=False) as services:
        services.change_policy(run_epsilon_max=0.5, proposals="ask")
        await services.start()
        await services.propose("one")
        seen = await services.phase("one", "refused")
        assert "policy.run_epsilon_max is 0.5" in seen["active"]["reason"]
        # A retry is a new run under a new name.
        budget = {"epsilon": 0.4, "delta": 0.01}
        await services.propose("one-2", budget=budget)
        await services.phase("one-2", "asked", parties=("passive-1",))


async def test_an_active_party_that_reads_refusals_is_told_no_more_reasons(tmp_path):
    """One proposal after the other would tell it the policy, and what is left in the ledger."""
    async with standing(tmp_path, start=False) as services:
        services.change_policy(run_epsilon_max=0.5, refusals_max=2)
        await services.start()
        for run in ("one", "two"):
            await services.propose(run)
            seen = await services.phase(run, "refused")
            assert "policy.run_epsilon_max" in seen["active"]["reason"]
        await services.propose("three")
        await services.phase("three", "asked", parties=("passive-1",))
        assert services.run("active", "three")["reason"] == ""
        await services.ask("passive-1", "answer", run="three", accepted=False, reason="no")
        seen = await services.phase("three", "refused")
        assert seen["active"]["reason"] == "passive-1: no"


async def test_a_party_that_cannot_take_part_ends_the_run_for_all_and_stands(tmp_path):
    async with standing(tmp_path) as services:
        rows = services.demo.rows("passive-1", "train")
        good = rows.read_text()
        rows.write_text(good.replace("\n", "\nnonsense,", 1))
        await services.propose("one")
        seen = await services.phase("one", "over")
        assert seen["passive-1"]["outcome"] == "stopped"
        assert "passive-1_train.csv" in seen["passive-1"]["reason"]
        assert seen["active"]["outcome"] == "withdrawn"
        assert "csv" not in seen["active"]["reason"]  # the text of the error stays with its owner
        rows.write_text(good)
        await services.propose("one-2")
        seen = await services.phase("one-2", "over")
        assert {each["outcome"] for each in seen.values()} == {"completed"}


async def test_commands_that_make_no_sense_are_refused_with_the_remedy(tmp_path):
    async with standing(tmp_path) as services:
        with pytest.raises(OperatorError, match="no member this party knows"):
            await services.propose("one", passive_parties=("unheard-of",))
        with pytest.raises(OperatorError, match="only the active party"):
            await services.ask("passive-1", "propose", manifest=services.manifest("one"))
        with pytest.raises(OperatorError, match="see 'hdpvfl runs'"):
            await services.ask("active", "stop", run="one")
        with pytest.raises(OperatorError, match="not a command"):
            await services.ask("active", "sing")
        await services.propose("one")
        await services.phase("one", "over")
        with pytest.raises(OperatorError, match="choose another name"):
            await services.propose("one", seed=99)
    with pytest.raises(NetworkError, match="start it with 'hdpvfl party'"):
        control.ask(tmp_path / "state" / "active", {"command": "status"}, what="hdpvfl party")


async def test_only_the_owner_can_open_the_control_socket(tmp_path: Path):
    async with standing(tmp_path) as services:
        await services.ask("active", "status")
        socket = tmp_path / "state" / "active" / control.NAME
        assert socket.stat().st_mode & 0o777 == 0o600


async def test_a_stopped_run_ends_for_everybody(tmp_path):
    async with standing(tmp_path, guarantee="none", epochs=3000) as services:
        await services.propose("one")
        await until(lambda: services.run("active", "one").get("round", 0) > 3, "rounds")
        await services.ask("passive-1", "stop", run="one")
        seen = await services.phase("one", "over")
        assert {each["outcome"] for each in seen.values()} == {"withdrawn"}
        await services.propose("two")
        await until(lambda: services.run("active", "two").get("round", 0) > 3, "rounds")
        await services.ask(COORDINATOR, "stop", run="two")
        seen = await services.phase("two", "over")
        assert {each["outcome"] for each in seen.values()} == {"withdrawn"}


async def test_a_closed_run_is_over_for_the_broker_although_a_party_is_away(tmp_path):
    """Bug: the page showed it under "Runs now", also after a restart, until that party was back."""
    async with standing(tmp_path, guarantee="none", epochs=3000) as services:
        await services.propose("one")
        await until(lambda: services.run("active", "one").get("round", 0) > 3, "rounds")
        await services.stop("passive-1")
        await services.ask(COORDINATOR, "stop", run="one")
        await services.phase("one", "over", "closed", parties=("active",))
        for restart in (False, True):
            if restart:
                await services.stop(COORDINATOR)
                await services.start(COORDINATOR)
            broker = services.live[COORDINATOR]
            (federation,) = broker.status()["federations"].values()
            run = federation["runs"]["one"]
            assert (run["phase"], run["outcome"]) == ("over", "withdrawn")


async def test_the_status_names_a_peer_that_serves_no_parts(tmp_path):
    async with standing(tmp_path, guarantee="none", epochs=3000) as services:
        await services.propose("one")
        await until(lambda: services.run("active", "one").get("round", 0) > 3, "rounds")
        parts = services.live["active"].hosted["one"].node.parts
        late = _Incoming(99, PartList.of_array(b"array"), {0: None}, unserved=LATE_FROM)
        parts._incoming["passive-1"] = late
        assert "passive-1" in services.run("active", "one")["waiting_for"]
        await services.ask(COORDINATOR, "stop", run="one")


async def test_frames_for_a_run_that_is_over_do_not_stop_the_broker(tmp_path, monkeypatch):
    """Bug: nobody took them, and the reader of all runs waited for room in their queue for ever."""
    monkeypatch.setattr("hdpvfl_mq.runtime.arrivals.QUEUE_MAX", 100)
    async with standing(tmp_path) as services:
        await services.propose("one")
        await services.phase("one", "over")
        broker = services.live[COORDINATOR]
        hosted = broker.table["one"]
        await until(lambda: not hosted.node.mailbox.awaited_peers, "the end is heard")
        to = (Delivery(party=COORDINATOR, sequence=0, ack=0, seen=NO_PARENT),)
        fields = {"run": "one", "sender": "passive-1", "kind": "ack", "to": to}
        version = {"version": hosted.node.identity.versions[0]}
        header = Header(**{**dict(example(Header)), **fields, **version})
        for _ in range(500):  # nobody verifies their signatures
            await services.live["passive-1"].link.send((encode_header(header), bytes(64), b"\x80"))
            await asyncio.sleep(0)
        assert "one" in broker.table, "it is forgotten already: the test shows nothing"
        await services.propose("two")
        seen = await services.phase("two", "over")
        assert {each["outcome"] for each in seen.values()} == {"completed"}
