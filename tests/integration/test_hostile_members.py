"""Members with valid keys against services that stand: nobody else's service stops or goes deaf."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hdpvfl_mq.runtime.keys import make_keys
from hdpvfl_mq.runtime.knock import knock
from hdpvfl_mq.runtime.settings import dump_settings, fields_of, load_settings
from hdpvfl_mq.wire.invitation import read_line
from parties.process.service import PartyService
from schemas.commands import ProposeRun
from schemas.config import (
    BrokerServiceSettings,
    FederationSettings,
    PartyServiceSettings,
    RunManifest,
)
from schemas.ids import COORDINATOR
from schemas.privacy import Budget
from tests.integration.standing import Services, standing, until


def propose(services: Services, manifest: dict, name: str = "active") -> None:
    """Propose as a service does whose commands check nothing."""
    service = services.live[name]
    assert isinstance(service, PartyService)
    made = RunManifest.model_validate_json(json.dumps(manifest))
    service.give(ProposeRun(manifest=made))


async def test_a_run_with_the_name_of_the_federation_makes_nobody_deaf(tmp_path):
    async with standing(tmp_path) as services:
        name = services.live["active"].settings.federation
        propose(services, services.manifest(name))
        await services.phase(name, "refused", "over", parties=("active",))
        for restart in (False, True):
            if restart:
                await services.stop("passive-1")
                await services.start("passive-1")
            await services.propose(f"after-{restart}")
            seen = await services.phase(f"after-{restart}", "over")
            assert {each["outcome"] for each in seen.values()} == {"completed"}


def second_federation(services: Services, folder: Path) -> None:
    """The same broker hosts a second federation, of the same two parties in other folders."""
    path = services.demo.service(COORDINATOR)
    broker = load_settings(BrokerServiceSettings, path)
    other = FederationSettings(name="autumn", members=broker.federations[0].members)
    fields = {**fields_of(broker), "federations": (*broker.federations, other)}
    path.write_text(dump_settings(BrokerServiceSettings(**fields)))
    for party in services.demo.parties:
        path = services.demo.service(party)
        moved = {
            **fields_of(load_settings(PartyServiceSettings, path)),
            "federation": "autumn",
            "state": str(folder / "state"),
            "runs": str(folder / "runs"),
        }
        path.write_text(dump_settings(PartyServiceSettings(**moved)))


async def test_a_run_named_like_one_of_another_federation_ends_for_its_own_parties_only(
    tmp_path, monkeypatch
):
    monkeypatch.setattr("broker.process.open_runs.FAREWELL_S", 0.1)
    async with standing(tmp_path) as services:
        await services.propose("one")
        await services.phase("one", "over")
        await services.stop()
        second_federation(services, tmp_path / "elsewhere")
        await services.start(COORDINATOR)
        others = Services(tmp_path / "elsewhere", services.demo)
        await others.start(*services.demo.parties)
        await others.propose("one")  # a new name in this federation, taken in the other
        for restart in (False, True):
            if restart:
                await services.stop(COORDINATOR)
                await services.start(COORDINATOR)
            seen = await others.phase("one", "refused", "over")
            assert all("another name" in each["reason"] for each in seen.values())
            await others.propose(f"own-{restart}")
            seen = await others.phase(f"own-{restart}", "over")
            assert {each["outcome"] for each in seen.values()} == {"completed"}
        await others.stop()


async def test_a_run_that_is_open_in_another_federation_is_not_disturbed(tmp_path):
    """Both names are in the broker's table at once."""
    async with standing(tmp_path, guarantee="none", epochs=150) as services:
        await services.propose("one")
        await until(lambda: services.run("active", "one").get("round", 0) > 3, "rounds")
        await services.stop()
        first = {p: services.demo.service(p).read_text() for p in services.demo.parties}
        second_federation(services, tmp_path / "elsewhere")
        others = Services(tmp_path / "elsewhere", services.demo)
        await services.start(COORDINATOR)
        await others.start(*services.demo.parties)
        await others.propose("one")
        seen = await others.phase("one", "refused", "over")
        assert all("another name" in each["reason"] for each in seen.values())
        await others.stop()
        for party, text in first.items():
            services.demo.service(party).write_text(text)
        await services.start(*services.demo.parties)
        seen = await services.phase("one", "over")
        assert {each["outcome"] for each in seen.values()} == {"completed"}


async def test_a_name_can_be_invited_again_after_its_member_was_removed(tmp_path):
    """A member that has lost its keys comes back: new keys, a new journal, the same name."""
    async with standing(tmp_path, start=False) as services:
        path = services.demo.service(COORDINATOR)
        broker = fields_of(load_settings(BrokerServiceSettings, path))
        bare = FederationSettings(name=broker["federations"][0].name)
        path.write_text(
            dump_settings(
                BrokerServiceSettings(
                    **{**broker, "address": broker["bind"], "federations": (bare,)}
                )
            )
        )
        await services.start(COORDINATOR)
        for life in ("first", "second"):
            line = (await services.ask(COORDINATOR, "invite", party="passive-1"))["line"]
            keys = make_keys(tmp_path / f"keys-{life}")
            await knock(read_line(line), keys)
            path = services.demo.service("passive-1")
            fields = fields_of(load_settings(PartyServiceSettings, path))
            fields |= {"keys": str(tmp_path / f"keys-{life}"), "state": str(tmp_path / life)}
            path.write_text(dump_settings(PartyServiceSettings(**fields)))
            await services.start("passive-1")
            node = services.live["passive-1"].node
            inbox = node.mailbox._inbox[COORDINATOR]
            await until(lambda each=inbox: each.received > 0, f"the roster, {life}")
            await services.stop("passive-1")
            await services.ask(COORDINATOR, "remove", party="passive-1")
            await until(
                lambda: not services.live[COORDINATOR].federations[bare.name].standing.members
            )


async def test_two_runs_at_once_that_exceed_the_cap_together_do_not(tmp_path):
    """Each is within the cap when it is proposed, and both are agreed on before either spends."""
    async with standing(tmp_path, start=False) as services:
        cap = Budget(epsilon=1.2, delta=0.01)
        services.change_policy(lifetime=cap)
        await services.start()
        for run in ("one", "two"):
            propose(services, services.manifest(run))
        outcomes = []
        for run in ("one", "two"):
            seen = await services.phase(run, "over", "refused")
            outcomes.append({each["outcome"] or each["phase"] for each in seen.values()})
        assert sum(each == {"completed"} for each in outcomes) <= 1
        assert {"completed"} not in outcomes or len({frozenset(each) for each in outcomes}) == 2
        for party in services.demo.parties:
            spent = (await services.ask(party, "status"))["budget"]["epsilon_spent"]
            assert spent <= cap.epsilon


async def test_a_member_that_was_removed_does_not_come_back_with_a_restart(tmp_path):
    """Bug: members whose keys are in settings files were seated again, with the same keys."""
    async with standing(tmp_path) as services:
        name = services.live["active"].settings.federation
        await until(lambda: "passive-1" in services.live["active"].belonging.fellows)
        await services.ask("active", "remove", party="passive-1")
        await until(lambda: "passive-1" not in services.live["active"].belonging.fellows)
        await services.stop("active")
        await services.start("active")
        active = services.live["active"]
        before = active.node.steps
        await until(lambda: active.link.is_connected and active.node.steps > before + 1)
        assert "passive-1" not in active.belonging.fellows
        await services.ask(COORDINATOR, "remove", party="passive-1")
        broker = services.live[COORDINATOR]
        await until(lambda: "passive-1" not in broker.federations[name].standing.members)
        await services.stop(COORDINATOR)
        await services.start(COORDINATOR)
        broker = services.live[COORDINATOR]
        await until(lambda: "active" in broker.connected(broker.federations[name]), "active")
        assert set(broker.federations[name].standing.members) == {"active"}


@pytest.mark.slow  # tests/simulation/test_lost_journal.py has it without services
@pytest.mark.parametrize("victim", [COORDINATOR, "passive-1"])
async def test_a_journal_lost_in_mid_run_ends_the_run_for_all(tmp_path, victim):
    async with standing(tmp_path, guarantee="none", epochs=20_000) as services:
        await services.propose("one")
        await until(lambda: services.run("active", "one").get("round", 0) > 3, "rounds")
        await services.stop(victim)
        for file in (services.demo.folder.parent / "one" / victim).glob("journal.db*"):
            file.unlink()
        await services.start(victim)
        seen = await services.phase("one", "over")  # of a deadline of hours
        assert "completed" not in {each["outcome"] for each in seen.values()}
