"""Attacks on running services: by members, by the registrar, by a former member.

It owns these attacks; lies are in the lies_of modules. The defence holds if every honest service
still runs, nothing happened that its operator did not allow, and a run of the federation still
completes.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

from hdpvfl_mq.app.scoring_manifest import manifest_of
from hdpvfl_mq.runtime.settings import dump_settings, fields_of, load_settings
from schemas.config import (
    AlignmentSpec,
    BrokerServiceSettings,
    FederationSettings,
    PartyServiceSettings,
    RunManifest,
)
from schemas.ids import COORDINATOR
from scripts.attacks.stage import Row
from scripts.attacks.standing import Standing, standing

NEVER_S = 3.0  # how long something that must not happen is looked for


def removed_member(folder: Path) -> Row:
    """A removed member connects again after a restart of the broker, whose settings name it."""
    with standing(folder) as on:
        on.start()
        on.until(lambda: "passive-1" in on.asked("active", "status")["members"], "the roster")
        on.ask("active", "remove", party="passive-1")
        on.ask(COORDINATOR, "remove", party="passive-1")
        on.stop(COORDINATOR)
        on.start(COORDINATOR)
        on.until(lambda: "active" in _federation(on)["connected"], "the active party")
        time.sleep(NEVER_S)
        members, fellows = _federation(on)["members"], on.ask("active", "status")["members"]
        held = set(members) == {"active"} and "passive-1" not in fellows
        held &= on.is_alive(COORDINATOR) and on.is_alive("active")
        what = f"members after the restart: {', '.join(members)}"
    name = "comes back with the broker's restart after its removal"
    return Row(name, "passive-1, removed", COORDINATOR, what, "none", held)


def _federation(on: Standing) -> dict[str, dict[str, str]]:
    shown = on.ask(COORDINATOR, "status")["federations"]
    return dict(shown[on.demo.federation])


def unapproved_run(folder: Path) -> Row:
    """The registrar opens a run that the passive party's operator has not approved."""
    with standing(folder) as on:
        on.change_policy(proposals="ask")
        on.start(COORDINATOR, lie="opened_unasked")
        on.start(*on.demo.parties)
        on.until(lambda: "active" in _federation(on)["connected"], "the parties")
        on.ask("active", "propose", manifest=on.manifest("unasked"))
        on.until(lambda: on.run("passive-1", "unasked")["phase"] != "unknown", "the proposal")
        refused = on.until(lambda: _about(on.refusals("passive-1"), "accepted"), "a refusal")
        time.sleep(NEVER_S)
        phase = on.run("passive-1", "unasked")["phase"]
        opened = (on.demo.folder.parent / "unasked" / "passive-1" / "journal.db").exists()
        held = phase == "asked" and not opened and on.is_alive("passive-1")
    name = "opens a run that a party's operator has not approved"
    return Row(name, COORDINATOR, "passive-1", refused[0], "none: the run does not open", held)


def overstated_versions(folder: Path) -> Row:
    """Both parties of a run overstate their version, so that the broker cannot serve the run."""
    with standing(folder) as on:
        on.start(COORDINATOR)
        on.start(*on.demo.parties, lie="overstated")
        on.until(lambda: len(_federation(on)["connected"]) == 2, "the parties")
        trained = on.trains("overstated")
        alive = on.is_alive(COORDINATOR)
        on.stop(COORDINATOR)
        on.start(COORDINATOR)  # a message that stopped it would arrive again after its restart
        on.until(lambda: len(_federation(on)["connected"]) == 2, "the parties again")
        held = alive and on.trains("later") and on.is_alive(COORDINATOR)
    what = f"the run opened in the broker's own version and {'completed' if trained else 'ended'}"
    name = "two members overstate their version to stop the broker"
    return Row(name, "active and passive-1", COORDINATOR, what, "none: later runs complete", held)


def equal_names(folder: Path) -> Row:
    """Members of another federation at the same broker propose a run of the same name."""
    with standing(folder, guarantee="none", epochs=300) as on:
        on.start()
        on.until(lambda: len(_federation(on)["connected"]) == 2, "the parties")
        on.ask("active", "propose", manifest=on.manifest("one"))
        on.until(lambda: on.run("active", "one").get("round", 0) > 3, "rounds")
        on.stop()
        own = {party: on.demo.service(party).read_text() for party in on.demo.parties}
        others = _second_federation(on, folder / "elsewhere")
        on.start(COORDINATOR)
        others.start(*on.demo.parties)
        others.ask("active", "propose", manifest=others.manifest("one"))
        refused = others.over("one")
        others.stop()
        for party, text in own.items():
            on.demo.service(party).write_text(text)
        on.start(*on.demo.parties)
        ends = {each["outcome"] for each in on.over("one").values()}
    told = refused["passive-1"]["reason"]
    held = ends == {"completed"} and all("name" in each["reason"] for each in refused.values())
    name = "proposes a run named like an open one of another federation"
    return Row(name, "members elsewhere", COORDINATOR, told, f"none: the run {_one(ends)}", held)


def _one(ends: set[str]) -> str:
    return " and ".join(sorted(ends))


def _second_federation(on: Standing, folder: Path) -> Standing:
    path = on.demo.service(COORDINATOR)
    broker = load_settings(BrokerServiceSettings, path)
    other = FederationSettings(name="autumn", members=broker.federations[0].members)
    fields = {**fields_of(broker), "federations": (*broker.federations, other)}
    path.write_text(dump_settings(BrokerServiceSettings(**fields)))
    for party in on.demo.parties:
        path = on.demo.service(party)
        moved = {
            **fields_of(load_settings(PartyServiceSettings, path)),
            "federation": "autumn",
            "state": str(folder / "state"),
            "runs": str(folder / "runs"),
        }
        path.write_text(dump_settings(PartyServiceSettings(**moved)))
    folder.mkdir(parents=True, exist_ok=True)
    return Standing(folder, on.demo)


def poisoned_query(folder: Path) -> Row:
    """The active party asks for scores under a number that no release can have."""
    with standing(folder) as on:
        on.change_policy(scoring="disclosed", queries_max=3, rows_min=2)
        on.start()
        on.until(lambda: len(_federation(on)["connected"]) == 2, "the parties")
        on.ask("active", "propose", manifest=on.manifest("trained"))
        on.over("trained")
        on.stop("active")
        on.start("active", lie="poison_query")
        on.ask("active", "propose", manifest=_session(on), session=True)
        on.over("session", "training")
        first = on.ask("active", "score", run="session", places=[0])["scores"][0]
        refused = on.until(lambda: _about(on.refusals("passive-1", "session"), "number"), "refusal")
        on.stop("passive-1")
        on.start("passive-1")  # what stopped a process came again after its restart
        on.over("session", "training")
        again = on.ask("active", "score", run="session", places=[0])["scores"][0]
        held = first["theta"] == again["theta"] and on.is_alive("passive-1")
    name = "a query for scores that no answer can be made to"
    cost = "none: the session answers, also after a restart"
    return Row(name, "active", "passive-1", refused[0], cost, held)


def _session(on: Standing) -> dict[str, object]:
    trained = RunManifest.model_validate({**on.demo.manifest.model_dump(), "run": "trained"})
    made = manifest_of(trained, "session", budget=None)
    alignment = AlignmentSpec(**{**dict(made.alignment), "rows_min": 2})
    fields = {**dict(made), "alignment": alignment, "absent_after_s": 3600.0}
    return dict(json.loads(RunManifest(**fields).model_dump_json()))


def _about(reasons: list[str], word: str) -> list[str]:
    return [reason for reason in reasons if word in reason]


ATTACKS: dict[str, Callable[[Path], Row]] = {
    each.__name__: each
    for each in (removed_member, unapproved_run, overstated_versions, equal_names, poisoned_query)
}
