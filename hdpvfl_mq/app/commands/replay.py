"""`hdpvfl replay`: fold a party's journal through its own role and require identical bytes.

It owns what the command prints; the folding is in refold.py.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hdpvfl_mq.app.lines import say
from hdpvfl_mq.app.refold import Replay, open_replay, profile_note
from hdpvfl_mq.audit.narrative import differences, line
from hdpvfl_mq.audit.reader import run_folder
from hdpvfl_mq.errors import SettingsError
from hdpvfl_mq.journal.chain import DivergenceError
from parties.party import Party
from parties.phases import Closed
from parties.process.models import model_differs
from schemas.ids import COORDINATOR

STORY_STEPS = 5


@dataclass(frozen=True)
class ReplayOptions:
    """Options of `hdpvfl replay`."""

    folder: Path
    party: str
    settings: Path | None = None
    until: int | None = None
    show: bool = False
    diverge: bool = False
    as_json: bool = False


def command(options: argparse.Namespace) -> int:
    """`hdpvfl replay` with parsed options."""
    return replay(
        ReplayOptions(
            run_folder(options.run, options.runs),
            options.party,
            options.settings,
            options.until,
            show=options.show,
            diverge=options.diverge,
            as_json=options.json,
        )
    )


def replay(options: ReplayOptions) -> int:
    """Replay and print the result; returns 0 if every byte is as recorded, else 5."""
    if options.until is not None and options.party == COORDINATOR:
        raise SettingsError("--until counts a party's rounds; the coordinator has none of its own")
    opened = open_replay(options.folder, options.party, options.settings)
    began, story = time.monotonic(), deque[str](maxlen=STORY_STEPS)
    result: dict[str, Any] = {"party": options.party, "identical": True}
    try:
        for record in opened.steps():
            story.append(line(record))
            if options.show and not options.as_json:
                say(story[-1])
            if _reached(opened, options.until):
                break
    except DivergenceError as diverged:
        if not options.diverge:
            raise
        result |= _divergence(diverged, opened, list(story))
    node = opened.node
    result |= {
        "steps": node.steps,
        "records": len(opened.transcript.rows),
        "round": node.role.progress(node.state).get("round"),
        "phase": node.role.progress(node.state)["phase"],
        "seconds": round(time.monotonic() - began, 3),
    }
    if (
        node.outcome == "completed"
        and (path := options.folder / options.party / "model.json").exists()
    ):
        result["model"] = _model(opened, path)
    _tell(result, as_json=options.as_json)
    return 0 if result["identical"] and not result.get("model") else 5


def _model(opened: Replay, path: Path) -> str:
    """How the model on disk differs from the replayed one; empty if they are equal."""
    role, state = opened.node.role, opened.node.state
    assert isinstance(role, Party)  # the coordinator writes no model
    assert isinstance(state, Closed)
    return model_differs(path, role.own, state)


def _reached(opened: Replay, until: int | None) -> bool:
    node = opened.node
    return until is not None and node.role.progress(node.state).get("round", 0) >= until


def _divergence(diverged: DivergenceError, opened: Replay, story: list[str]) -> dict[str, Any]:
    recorded = opened.transcript.records[diverged.index]
    found = {
        "identical": False,
        "diverges_at": diverged.index,
        "story": [*story, f"{line(recorded)}   <- recorded; comes out differently"],
        "differences": differences(diverged.recorded, diverged.recomputed, diverged.index),
    }
    if opened.transcript.party != COORDINATOR and (note := profile_note(opened.transcript)):
        found["profile"] = note
    return found


def _tell(result: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print(json.dumps(result))
        return
    for part in result.get("story", ()):
        say(part)
    for part in result.get("differences", ()):
        say(f"        {part}")
    if "profile" in result:
        say(f"        {result['profile']}")
    if result.get("model"):
        say(result["model"])
    where = "" if result["round"] is None else f", round {result['round']}"
    verdict = (
        "every byte as recorded"
        if result["identical"]
        else f"step {result['diverges_at']} comes out differently"
    )
    say(
        f"{result['party']}: {result['steps']} of {result['records']} records folded{where}, "
        f"{result['seconds']:.2f} s: {verdict}"
    )
