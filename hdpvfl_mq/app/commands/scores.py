"""`hdpvfl predict` and `hdpvfl score` through running services: propose, follow, ask.

It owns what these commands ask and print; the service on this machine does the work.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

from rich.console import Console

from hdpvfl_mq.app.commands.services import ask, settings_file, show
from hdpvfl_mq.app.demo.nursery import Nursery
from hdpvfl_mq.app.lines import say
from hdpvfl_mq.app.live import Federation
from hdpvfl_mq.app.scoring_manifest import ScoresWanted, latest_model, scores_name
from hdpvfl_mq.errors import EXIT_BY_OUTCOME, error_of
from hdpvfl_mq.runtime.in_short import ENDED

POLL_S = 0.3
_WANTED = ScoresWanted.__dataclass_fields__


def predict(options: argparse.Namespace) -> int:
    """Score with this party's service, or on this machine with a run of 'hdpvfl up'."""
    if options.settings is not None or Path("party.toml").exists():
        return _predict_standing(options)
    with Nursery() as nursery:  # first, so that its processes import while this one does
        from hdpvfl_mq.app.commands import predict as local  # noqa: PLC0415 - start-up

        fields = local.PredictOptions.__dataclass_fields__
        chosen = local.PredictOptions(**{name: getattr(options, name) for name in fields})
        result = local.start(chosen, Console(quiet=options.json), nursery)
    if options.json:
        print(json.dumps(result))
    return 0


def _predict_standing(options: argparse.Namespace) -> int:
    """Score all people of a file, or open a session that scores single people."""
    from parties.process.score_results import reasons_in  # noqa: PLC0415 - start-up

    federation = Federation.connect(settings_file(options.settings))
    runs = federation.ask("runs")["runs"]
    model = latest_model(runs) if options.run == "latest" else options.run
    trained = federation.run(model).manifest
    wanted = ScoresWanted(**{name: getattr(options, name) for name in _WANTED})
    manifest = federation.scoring(wanted, trained, scores_name(model, runs))
    rows, out = (None if f is None else f.absolute() for f in (options.rows, options.output))
    run = federation.propose(manifest, rows=rows, out=out, session=options.keep)
    if options.keep:
        return _opened(options, manifest.run)
    for progress in run.news():
        if not options.json:
            say(str(progress))
    run.check(progress)
    found = str(out or federation.folder(run.name) / "predictions.csv")
    missing = reasons_in(federation.folder(run.name))
    answer = {"run": manifest.run, "predictions": found, "missing": missing, **progress.fields}

    def lines() -> None:
        for partner, reason in missing.items():
            say(f"missing  {partner}, in some scores: {reason}")
        say(f"scores   {found}")

    return show(options, answer, lines)


def _opened(options: argparse.Namespace, name: str) -> int:
    """Wait until the session answers requests."""
    while True:
        run = ask(options, "runs")["runs"].get(name, {})
        if run.get("phase") in ENDED:
            raise error_of(EXIT_BY_OUTCOME.get(run["outcome"], 1), run["reason"])
        if run.get("phase") == "training":
            people = run["rows_common"]
            break
        time.sleep(POLL_S)
    text = f"{name}: {people} people; 'hdpvfl score {name} ID ...' asks for some"
    return show(options, {"run": name, "people": people}, lambda: say(text))


def score(options: argparse.Namespace) -> int:
    """Ask an open session for scores of single people, or end the session."""
    if options.end:
        answer = ask(options, "end_session", run=options.run)
        return show(options, answer, lambda: say(f"{options.run}: ends"))
    answer = ask(options, "score", run=options.run, ids=options.ids, places=options.place)

    def lines() -> None:
        for each in answer["scores"]:
            name = each.get("id", each["place"])
            value = "refused" if each["prediction"] is None else f"{each['prediction']:.6g}"
            notes = "; ".join(f"without {p}: {why}" for p, why in each["without"].items())
            say(f"{name}  {value}{'  ' if notes else ''}{notes}")

    return show(options, answer, lines)
