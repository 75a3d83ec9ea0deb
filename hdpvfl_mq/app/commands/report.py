"""`hdpvfl report`: write <party>/report.html for every party whose journal is here.

It owns which files are read and written; the facts and the page are in their own modules.
"""

from __future__ import annotations

import json

from hdpvfl_mq.app.commands.audit import AuditOptions, gather
from hdpvfl_mq.app.refold import open_replay
from hdpvfl_mq.app.report.facts import gather_facts
from hdpvfl_mq.app.report.page import render
from hdpvfl_mq.audit.audit import audit
from hdpvfl_mq.errors import OperatorError, SettingsError
from hdpvfl_mq.runtime.files import write_private
from parties.phases import ActiveRounds, training_of
from schemas.ids import COORDINATOR, PartyId


def report(options: AuditOptions, parties: tuple[PartyId, ...]) -> int:
    """Write the pages and say where they are; the audit's verdict is in them."""
    evidence = gather(options)
    wanted = parties or tuple(p for p in evidence.transcripts if p != COORDINATOR)
    unknown = [p for p in wanted if p not in evidence.transcripts or p == COORDINATOR]
    if unknown or not wanted:
        raise SettingsError(f"no party's journal of {', '.join(unknown) or 'anybody'} is here")
    verdicts = audit(evidence)
    written = {}
    for party in wanted:
        losses = own_losses(options, party) if evidence.keys[party].role == "active" else ()
        path = options.folder / party / "report.html"
        write_private(path, render(gather_facts(evidence, party, verdicts, losses)))
        written[party] = str(path)
    if options.as_json:
        print(json.dumps(written))
    else:
        for party, path_text in written.items():
            print(f"{party}: {path_text}")
    return 0


def own_losses(options: AuditOptions, party: PartyId) -> tuple[float, ...]:
    """The active party's loss by round, where its data and secret are at hand."""
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
