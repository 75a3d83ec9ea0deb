"""`hdpvfl report`: write <party>/report.html for every party whose journal is here.

It owns which files are read and written; app/report gathers the facts and renders the page.
"""

from __future__ import annotations

import argparse
import datetime
import json
from pathlib import Path

from hdpvfl_mq.app.commands.audit import AuditOptions, gather
from hdpvfl_mq.app.lines import say
from hdpvfl_mq.app.refold import open_replay, settings_file
from hdpvfl_mq.app.report.facts import Own, gather_facts
from hdpvfl_mq.app.report.learnt import learnt
from hdpvfl_mq.app.report.page import render
from hdpvfl_mq.audit.audit import audit
from hdpvfl_mq.audit.reader import run_folder
from hdpvfl_mq.errors import OperatorError, SettingsError
from hdpvfl_mq.runtime.files import write_private
from hdpvfl_mq.runtime.settings import load_settings
from parties.phases import ActiveRounds, training_of
from schemas.config import PartySettings, RunManifest
from schemas.ids import COORDINATOR, PartyId


def command(options: argparse.Namespace) -> int:
    """`hdpvfl report` with parsed options."""
    return report(
        AuditOptions(
            run_folder(options.run, options.runs),
            (),
            options.members,
            options.ledgers,
            as_json=options.json,
        ),
        tuple(options.party),
    )


def report(options: AuditOptions, parties: tuple[PartyId, ...]) -> int:
    """Write the pages, which include the audit's verdict, and print their paths."""
    evidence = gather(options)
    wanted = parties or tuple(p for p in evidence.transcripts if p != COORDINATOR)
    unknown = [p for p in wanted if p not in evidence.transcripts or p == COORDINATOR]
    if unknown or not wanted:
        raise SettingsError(f"no party's journal of {', '.join(unknown) or 'anybody'} is here")
    verdicts = audit(evidence)
    written, now = {}, f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d %H:%M} UTC"
    for party in wanted:
        losses = own_losses(options, party) if evidence.keys[party].role == "active" else ()
        path = options.folder / party / "report.html"
        own = own_side(_trained_in(options.folder, evidence.manifest), party)
        facts = gather_facts(evidence, party, verdicts, losses, own=own, made_at=now)
        write_private(path, render(facts))
        written[party] = str(path)
    if options.as_json:
        print(json.dumps(written))
    else:
        for party, path_text in written.items():
            say(f"{party}: {path_text}")
    return 0


def _trained_in(folder: Path, manifest: RunManifest | None) -> Path:
    """The folder of the run that trained the model; a scoring session uses an earlier one."""
    method = manifest.method if manifest else None
    return folder.parent / str(method.model_of) if method and method.is_session else folder


def own_side(folder: Path, party: PartyId) -> Own:
    """Data set, columns and learnt constants, from the party's own files; empty without them."""
    if not (folder / party / "model.json").is_file():
        return Own()
    kept = json.loads((folder / party / "model.json").read_text())
    settings = settings_file(folder, party)
    which: tuple[str, ...] = ()
    if settings.exists():
        names = [rule["name"] for rule in kept["data"]["rules"]]
        which = learnt(load_settings(PartySettings, settings).data, names)
    return Own(kept["dataset"], tuple(kept["columns"]), bool(kept["data"]["learned"]), which)


def own_losses(options: AuditOptions, party: PartyId) -> tuple[float, ...]:
    """The active party's loss by round, if its data and secret are on this machine."""
    try:
        opened = open_replay(options.folder, party)
    except OperatorError:
        return ()
    losses: list[float] = []
    for _ in opened.steps():
        training = training_of(opened.node.state)
        if training is not None and isinstance(training.rounds, ActiveRounds):
            seen = training.rounds.own_losses
            new = min(len(seen), training.round - len(losses))
            losses.extend(seen[-new:] if new > 0 else ())
    return tuple(losses)
