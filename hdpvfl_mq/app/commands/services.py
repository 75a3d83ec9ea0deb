"""Commands that talk to a service on this machine: status, runs, requests, train and others.

It owns what they print; the running service does the work. A command finds its service by the
settings file: party.toml or broker.toml in this folder, unless --settings names another.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hdpvfl_mq.app.joining import joining, result_lines
from hdpvfl_mq.app.lines import say
from hdpvfl_mq.app.live import Federation, Wanted
from hdpvfl_mq.errors import OperatorError, SettingsError
from hdpvfl_mq.methods.recommend import delta_warning
from hdpvfl_mq.runtime import control
from hdpvfl_mq.runtime.in_short import budget_in_short, run_in_short
from hdpvfl_mq.runtime.logs import RUN_LOG, as_text
from hdpvfl_mq.runtime.page import PageFiles, address_of
from hdpvfl_mq.runtime.settings import check_settings, load_settings, names
from schemas.base import printable
from schemas.config import (
    BrokerServiceSettings,
    PartyServiceSettings,
    RunManifest,
)
from schemas.ids import COORDINATOR

POLL_S = 0.3


def settings_file(named: Path | None) -> Path:
    """The settings file of the service on this machine."""
    if named is not None:
        return named
    for name in ("party.toml", "broker.toml"):
        if Path(name).exists():
            return Path(name)
    raise SettingsError("there is no party.toml or broker.toml here: add --settings FILE")


def ask(options: argparse.Namespace, command: str, **fields: Any) -> dict[str, Any]:
    """Send a command to the service and return its answer."""
    path = settings_file(options.settings)
    if names(path, "federations"):
        folder = Path(load_settings(BrokerServiceSettings, path).state) / "broker"
        return control.ask(folder, {"command": command, **fields}, what=f"hdpvfl broker {path}")
    settings = load_settings(PartyServiceSettings, path)
    folder = Path(settings.state) / settings.party
    return control.ask(folder, {"command": command, **fields}, what=f"hdpvfl party {path}")


def show(options: argparse.Namespace, answer: dict[str, Any], lines: Callable[[], None]) -> int:
    """Print an answer as JSON or as text."""
    if options.json:
        print(json.dumps(answer))
    else:
        lines()
    return 0


def page(options: argparse.Namespace) -> int:
    """Print the address of the service's page for a browser on this machine, with its token."""
    path = settings_file(options.settings)
    if names(path, "federations"):
        broker = load_settings(BrokerServiceSettings, path)
        watch, place = broker.watch, PageFiles(Path(broker.state) / "broker", Path(), "")
    else:
        party = load_settings(PartyServiceSettings, path)
        watch, place = party.watch, PageFiles(Path(party.state) / party.party, Path(), "")
    if watch is None:
        raise SettingsError(f'{path} serves no page: add watch = "127.0.0.1:7780" and start again')
    address = address_of(watch, place)
    return show(options, {"page": address}, lambda: print(address))


def status(options: argparse.Namespace) -> int:
    """Print who is connected, what waits for whom, what is spent and left."""
    answer = ask(options, "status")
    return show(options, answer, lambda: _status_lines(answer))


def _status_lines(answer: dict[str, Any]) -> None:
    if answer["service"] == "broker":
        say(f"broker at {answer['address']}, version {answer['version']}")
        for name, federation in answer["federations"].items():
            here = set(federation["connected"])
            members = ", ".join(
                f"{party} ({role}, {'connected' if party in here else 'away'})"
                for party, role in federation["members"].items()
            )
            say(f"federation {name}: {members or 'nobody has joined yet'}")
            _run_lines(federation["runs"])
        return
    where = "connected" if answer["connected"] else f"not connected: {answer['trouble']}"
    say(f"{answer['party']} ({answer['role']}) in {answer['federation']}: {where}")
    say(f"members: {', '.join(answer['members']) or 'nobody is confirmed yet'}")
    for dispute in answer["disputes"]:
        say(f"DANGER:  {dispute}")
    for party, pairing in answer["pairings"].items():
        say(f"waits:   {party}: {pairing}")
    budget = answer["budget"]
    say(f"budget:  {budget['dataset']}: {budget_in_short(budget)} at delta {budget['delta']:g}")
    _run_lines(answer["runs"])


def runs(options: argparse.Namespace) -> int:
    """Print every run this service knows."""
    answer = ask(options, "runs")
    found = answer.get("runs") or {
        name: run for f in answer.get("federations", {}).values() for name, run in f["runs"].items()
    }
    return show(options, {"runs": found}, lambda: _run_lines(found))


def _run_lines(found: dict[str, Any]) -> None:
    for name, run in found.items():
        say(f"run {name}: {run_in_short(run)}")


def logs(options: argparse.Namespace) -> int:
    """Print this service's log of one run; works also while the service is down."""
    path = settings_file(options.settings)
    if names(path, "federations"):
        runs, owner = load_settings(BrokerServiceSettings, path).runs, COORDINATOR
    else:
        settings = load_settings(PartyServiceSettings, path)
        runs, owner = settings.runs, settings.party
    kept = Path(runs) / options.run / owner / RUN_LOG
    if not kept.exists():
        raise OperatorError(
            f"there is no log of run {options.run} in {kept.parent}; 'hdpvfl runs' lists runs"
        )
    for line in kept.read_text().splitlines():
        print(line if options.json else printable(as_text(json.loads(line))))
    return 0


def requests(options: argparse.Namespace) -> int:
    """Print the proposals that wait for this operator."""
    answer = ask(options, "requests")

    def lines() -> None:
        for name, run in answer["requests"].items():
            budget = (
                "no privacy"
                if run["epsilon"] is None
                else f"epsilon {run['epsilon']:g} at delta {run['delta']:g}"
            )
            say(
                f"{name}: {run['active']} asks {', '.join(run['passive'])} for {run['method']}, "
                f"{run['guarantee']}, {budget}"
            )
            if run["reveals"]:
                say(f"  reveals {run['reveals']}")
            say(f"  hdpvfl approve {name}   or   hdpvfl refuse {name} --reason TEXT")
        if not answer["requests"]:
            say("nobody waits for an answer")

    return show(options, answer, lines)


def approve(options: argparse.Namespace) -> int:
    """Accept a proposed run."""
    answer = ask(options, "answer", run=options.run, accepted=True)
    return show(options, answer, lambda: say(f"{options.run}: this party takes part"))


def refuse(options: argparse.Namespace) -> int:
    """Refuse a proposed run, with a reason."""
    answer = ask(options, "answer", run=options.run, accepted=False, reason=options.reason)
    return show(options, answer, lambda: say(f"{options.run}: refused"))


def stop(options: argparse.Namespace) -> int:
    """End a run for all its parties."""
    answer = ask(options, "stop", run=options.run)
    text = f"{options.run}: asked to end; what is spent stays spent"
    return show(options, answer, lambda: say(text))


def train(options: argparse.Namespace) -> int:
    """Propose a run as its active party and follow it."""
    federation = Federation.connect(settings_file(options.settings))
    manifest = _manifest(options, federation)
    if not options.json:
        budget = manifest.budget
        cost = f"epsilon {budget.epsilon:g} at delta {budget.delta:g}" if budget else "no privacy"
        say(f"{manifest.run}: {manifest.loss.name}, {manifest.method.kind}, {cost}")
        say(f"partners: {', '.join(manifest.passive_parties)}; each spends as much as this party")
    run = federation.propose(manifest)
    if options.no_wait:
        return show(options, {"run": run.name}, lambda: say("proposed; see 'hdpvfl runs'"))
    for progress in run.news():
        if not options.json:
            say(str(progress))
    model = run.result(progress)
    warning = delta_warning(manifest.budget.delta, model["rows"]) if manifest.budget else None
    if warning and not options.json:
        say(f"warning: {warning}")
    answer = {"run": run.name, "model": str(run.model_file), "warning": warning}
    lines = (*result_lines(model), f"model    {run.model_file}")

    def say_lines() -> None:
        for line in lines:
            say(line)

    return show(options, {**answer, "partners": joining(model), **progress.fields}, say_lines)


def _manifest(options: argparse.Namespace, federation: Federation) -> RunManifest:
    if options.again:
        return federation.again(options.again)
    if options.manifest:
        fields = json.loads(load_settings(RunManifest, options.manifest).model_dump_json())
        return check_settings(RunManifest, {**fields, "run": options.run or fields["run"]}, "run")
    return federation.manifest(
        Wanted(
            loss=options.loss,
            epsilon=options.epsilon,
            delta=options.delta,
            noise=options.noise,
            disclosed_rows=options.disclosed_rows,
            held_out_rows=options.held_out_rows,
            partners=tuple(options.partners.split(",")) if options.partners else (),
            rows_min=options.rows_min,
            seed=options.seed,
            run=options.run,
        )
    )
