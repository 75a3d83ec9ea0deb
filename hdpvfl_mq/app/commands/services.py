"""Commands that speak to a service on this machine: status, runs, requests, train and their like.

It owns their words on the console; the service that stands does the work. A command finds its
service by the settings file: party.toml or broker.toml in this folder, unless --settings says else.
"""

from __future__ import annotations

import argparse
import datetime
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hdpvfl_mq.errors import SettingsError, error_of
from hdpvfl_mq.methods.recommend import recommend
from hdpvfl_mq.runtime import control
from hdpvfl_mq.runtime.process import EXIT_BY_OUTCOME
from hdpvfl_mq.runtime.settings import check_settings, load_settings, names
from schemas.config import (
    AlignmentSpec,
    BrokerServiceSettings,
    PartyPolicy,
    PartyServiceSettings,
    RunManifest,
)
from schemas.model import LossSpec
from schemas.privacy import Budget

POLL_S = 0.3
_DONE = ("over", "refused")


def settings_file(named: Path | None) -> Path:
    """The settings of the service on this machine."""
    if named is not None:
        return named
    for name in ("party.toml", "broker.toml"):
        if Path(name).exists():
            return Path(name)
    raise SettingsError("there is no party.toml or broker.toml here: say --settings FILE")


def ask(options: argparse.Namespace, command: str, **fields: Any) -> dict[str, Any]:
    """The service's answer."""
    path = settings_file(options.settings)
    if names(path, "federations"):
        folder = Path(load_settings(BrokerServiceSettings, path).state) / "broker"
        return control.ask(folder, {"command": command, **fields}, what=f"hdpvfl broker {path}")
    settings = load_settings(PartyServiceSettings, path)
    folder = Path(settings.state) / settings.party
    return control.ask(folder, {"command": command, **fields}, what=f"hdpvfl party {path}")


def show(options: argparse.Namespace, answer: dict[str, Any], lines: Callable[[], None]) -> int:
    """Print an answer for machines or for people."""
    if options.json:
        print(json.dumps(answer))
    else:
        lines()
    return 0


def status(options: argparse.Namespace) -> int:
    """Who is connected, what waits for whom, what is spent and left."""
    answer = ask(options, "status")
    return show(options, answer, lambda: _status_lines(answer))


def _status_lines(answer: dict[str, Any]) -> None:
    if answer["service"] == "broker":
        print(f"broker at {answer['address']}, version {answer['version']}")
        for name, federation in answer["federations"].items():
            here = set(federation["connected"])
            members = ", ".join(
                f"{party} ({role}, {'connected' if party in here else 'away'})"
                for party, role in federation["members"].items()
            )
            print(f"federation {name}: {members or 'nobody has joined yet'}")
            _run_lines(federation["runs"])
        return
    where = "connected" if answer["connected"] else f"not connected: {answer['trouble']}"
    print(f"{answer['party']} ({answer['role']}) in {answer['federation']}: {where}")
    print(f"members: {', '.join(answer['members']) or 'nobody is confirmed yet'}")
    for party, pairing in answer["pairings"].items():
        print(f"waits:   {party}: {pairing}")
    budget = answer["budget"]
    print(
        f"budget:  {budget['dataset']}: epsilon {_short(budget['epsilon_spent'])} spent of "
        f"{budget['epsilon_cap']:g} at delta {budget['delta']:g}"
    )
    _run_lines(answer["runs"])


def runs(options: argparse.Namespace) -> int:
    """Every run this service knows."""
    answer = ask(options, "runs")
    found = answer.get("runs") or {
        name: run for f in answer.get("federations", {}).values() for name, run in f["runs"].items()
    }
    return show(options, {"runs": found}, lambda: _run_lines(found))


def _run_lines(found: dict[str, Any]) -> None:
    for name, run in found.items():
        print(f"run {name}: {_run_text(run)}")


def _run_text(run: dict[str, Any]) -> str:
    text = str(run["outcome"] or run["phase"])
    if run.get("rounds"):
        text += f", round {run.get('round', run['rounds'])} of {run['rounds']}"
    if run.get("epsilon_spent") is not None:
        text += f", epsilon spent {_short(run['epsilon_spent'])}"
    if run.get("waiting_for"):
        text += f", waiting for {', '.join(run['waiting_for'])}"
    return f"{text} ({run['reason']})" if run.get("reason") else text


def requests(options: argparse.Namespace) -> int:
    """Proposals that wait for this operator."""
    answer = ask(options, "requests")

    def lines() -> None:
        for name, run in answer["requests"].items():
            budget = (
                "no privacy"
                if run["epsilon"] is None
                else f"epsilon {run['epsilon']:g} at delta {run['delta']:g}"
            )
            print(
                f"{name}: {run['active']} asks {', '.join(run['passive'])} for {run['method']}, "
                f"{run['guarantee']}, {budget}"
            )
            print(f"  hdpvfl approve {name}   or   hdpvfl refuse {name} --reason TEXT")
        if not answer["requests"]:
            print("nobody waits for an answer")

    return show(options, answer, lines)


def approve(options: argparse.Namespace) -> int:
    """Take part in a proposed run."""
    answer = ask(options, "answer", run=options.run, accepted=True)
    return show(options, answer, lambda: print(f"{options.run}: this party takes part"))


def refuse(options: argparse.Namespace) -> int:
    """Take no part, and say why."""
    answer = ask(options, "answer", run=options.run, accepted=False, reason=options.reason)
    return show(options, answer, lambda: print(f"{options.run}: refused"))


def stop(options: argparse.Namespace) -> int:
    """End a run for everybody."""
    answer = ask(options, "stop", run=options.run)
    text = f"{options.run}: asked to end; what is spent stays spent"
    return show(options, answer, lambda: print(text))


def train(options: argparse.Namespace) -> int:
    """Propose a run as its active party and follow it."""
    path = settings_file(options.settings)
    settings = load_settings(PartyServiceSettings, path)
    manifest = _manifest(options, settings)
    if not options.json:
        budget = manifest.budget
        cost = f"epsilon {budget.epsilon:g} at delta {budget.delta:g}" if budget else "no privacy"
        print(f"{manifest.run}: {manifest.loss.name}, {manifest.method.kind}, {cost}")
        print(f"partners: {', '.join(manifest.passive_parties)}; each spends as much as this party")
    ask(options, "propose", manifest=json.loads(manifest.model_dump_json()))
    if options.no_wait:
        return show(options, {"run": manifest.run}, lambda: print("proposed; see 'hdpvfl runs'"))
    run = _follow(options, manifest.run)
    outcome = run["outcome"] or run["phase"]
    if outcome != "completed":
        again = f"; 'hdpvfl train --again {manifest.run}' tries under a new name"
        raise error_of(EXIT_BY_OUTCOME.get(outcome, 1), f"{_run_text(run)}{again}")
    model = Path(settings.runs) / manifest.run / settings.party / "model.json"
    answer = {"run": manifest.run, "model": str(model), **run}
    return show(options, answer, lambda: print(f"model    {model}"))


def _follow(options: argparse.Namespace, name: str) -> dict[str, Any]:
    """Say what is new until the run is over."""
    said = ""
    while True:
        run: dict[str, Any] = ask(options, "runs")["runs"].get(name, {})
        if run:
            text = _run_text(run)
            if text != said and not options.json:
                print(text, flush=True)
            said = text
            if run["phase"] in _DONE:
                return run
        time.sleep(POLL_S)


def _manifest(options: argparse.Namespace, settings: PartyServiceSettings) -> RunManifest:
    name = options.run or f"{settings.federation}-{datetime.datetime.now():%Y%m%d-%H%M%S}"
    if options.again:
        fields = ask(options, "manifest", run=options.again)["manifest"]
        taken = set(ask(options, "runs")["runs"])
        number = 2
        while (name := f"{options.again}-{number}") in taken:
            number += 1
        return check_settings(RunManifest, {**fields, "run": name}, "run")
    if options.manifest:
        fields = json.loads(load_settings(RunManifest, options.manifest).model_dump_json())
        return check_settings(RunManifest, {**fields, "run": options.run or fields["run"]}, "run")
    members = ask(options, "status")["members"]
    known = tuple(sorted(party for party, role in members.items() if role == "passive"))
    passives = tuple(options.partners.split(",")) if options.partners else known
    if not passives:
        raise SettingsError("nobody to train with: see 'hdpvfl status'")
    chosen = {"epsilon": options.epsilon, "delta": options.delta}
    budget = check_settings(Budget, chosen, "options")
    loss = check_settings(LossSpec, {"name": options.loss}, "options: loss")
    policy = load_settings(PartyPolicy, Path(settings.policy))
    base = recommend(name, (settings.party, passives), "sound", budget, loss)
    alignment = AlignmentSpec(ids=settings.ids, rows_min=max(policy.rows_min, options.rows_min))
    fields = {**base.model_dump(), "alignment": alignment.model_dump(), "seed": options.seed}
    return check_settings(RunManifest, fields, "options")


def _short(number: float | str) -> str:
    return number if isinstance(number, str) else f"{number:.4g}"
