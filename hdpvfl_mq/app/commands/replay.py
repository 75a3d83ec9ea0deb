"""`hdpvfl replay`: fold a party's journal through its own role and demand identical bytes.

It owns what the command prints; the folding is in replaying.py.
"""

from __future__ import annotations

import json
import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hdpvfl_mq.app.refold import Replay, open_replay, profile_note
from hdpvfl_mq.audit.narrative import differences, line
from hdpvfl_mq.errors import SettingsError
from hdpvfl_mq.journal.chain import DivergenceError
from schemas.ids import COORDINATOR

STORY_STEPS = 5


@dataclass(frozen=True)
class ReplayOptions:
    """What a person may choose."""

    folder: Path
    party: str
    settings: Path | None = None
    until: int | None = None
    show: bool = False
    diverge: bool = False
    as_json: bool = False


def replay(options: ReplayOptions) -> int:
    """Replay and say how it went; 0 when every byte came out as recorded, 5 when one did not."""
    if options.until is not None and options.party == COORDINATOR:
        raise SettingsError("--until counts a party's rounds; the coordinator has none of its own")
    opened = open_replay(options.folder, options.party, options.settings)
    began, story = time.monotonic(), deque[str](maxlen=STORY_STEPS)
    result: dict[str, Any] = {"party": options.party, "identical": True}
    try:
        for record in opened.steps():
            story.append(line(record))
            if options.show and not options.as_json:
                print(story[-1])
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
    _tell(result, as_json=options.as_json)
    return 0 if result["identical"] else 5


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
        print(part)
    for part in result.get("differences", ()):
        print(f"        {part}")
    if "profile" in result:
        print(f"        {result['profile']}")
    where = "" if result["round"] is None else f", round {result['round']}"
    verdict = (
        "every byte as recorded"
        if result["identical"]
        else f"step {result['diverges_at']} comes out differently"
    )
    print(
        f"{result['party']}: {result['steps']} of {result['records']} records folded{where}, "
        f"{result['seconds']:.2f} s: {verdict}"
    )
