"""Members that lie: a real process tells each lie of liar.py, and the others' reaction is judged.

It owns who tells which lie and the judgement; the lies are in liar.py. The defence holds if every
honest process ended by itself, every party that completed has the model of the run without a liar,
at least one process recorded why, no honest journal has grown above its limit, and both verifiers
say the same of the honest journals, which do not contradict themselves.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

from schemas.ids import COORDINATOR
from scripts.attacks.stage import LIMIT_MIB, Row, Stage, stage

JOURNAL_MIB = 256.0  # an honest journal after an attack: the limit of one peer, with room
CONTRADICTION = 5  # exit code: the evidence contradicts itself


@dataclass(frozen=True)
class Told:
    """One lie, the process that tells it, and its name in the table."""

    lie: str
    liar: str
    name: str
    dataset: str = "breast"


TOLD = (
    Told("not_a_number", "passive-2", "NaN instead of scores"),
    Told("not_a_number_instead", "passive-2", "NaN in the place of scores"),
    Told(
        "shifted_query", "active", "a query of entity resolution that is not of codewords", "visits"
    ),
    Told("ground_seed", "passive-2", "a share in the public seed that it did not commit to"),
    Told("weaker_method", COORDINATOR, "names a method of entity resolution of its own"),
    Told("other_orders", COORDINATOR, "allows the active party fewer rounds than the others"),
    Told("another_round", "passive-2", "scores for another round"),
    Told(
        "numbered_ack", "passive-2", "an acknowledgement with a number, so that one looks missing"
    ),
    Told("no_message", "passive-2", "bytes that are not a message before its scores"),
    Told("one_story_each", "active", "each passive party is told another residual"),
    Told("false_seen", "passive-2", "co-signs envelopes that were never sent"),
    Told("false_ack", "passive-2", "acknowledges what was never sent"),
    Told("escape_codes", "passive-2", "terminal escape codes in a refusal"),
    Told("blocks_too_early", "passive-2", "640 MiB of blocks before entity resolution"),
    Told("endless_notices", "passive-2", "640 MiB of notices that are legal at any time"),
    Told("gap", "passive-2", "640 MiB behind a missing sequence number"),
    Told("early_end", COORDINATOR, "ends the run as completed before a round"),
    Told("split_manifest", COORDINATOR, "offers one party another manifest"),
    Told("more_rounds", COORDINATOR, "allows more rounds than the plan has"),
    Told("no_parts", "passive-2", "lists a share in parts and serves none of them"),
    Told("part_sizes", "passive-2", "lists parts of a different size from those it serves"),
    Told("false_end", "active", "forwards signatures under the end that nobody made"),
    *(
        Told(lie, "active", f"in entity resolution: {name}", "visits")
        for lie, name in (
            ("torsion_opening", "a first point that would show secret bits by its order"),
            ("identity_opening", "the identity as first point"),
            ("short_query", "a query that lacks 16 bytes"),
            ("other_query", "a query for another bucket"),
            ("query_twice", "every query twice"),
            ("other_common", "common ids that nobody has"),
            ("fewer_common", "one party is told of one common id fewer"),
        )
    ),
    *(
        Told(lie, "passive-2", f"in entity resolution: {name}", "visits")
        for lie, name in (
            ("torsion_choice", "a point outside the group of prime order"),
            ("identity_choice", "the identity as a point"),
            ("odd_choice", "a point that is not canonical"),
            ("short_choice", "half a point is missing"),
            ("short_answer", "an answer that lacks 16 bytes"),
            ("other_answer", "an answer for another bucket"),
            ("answer_twice", "every answer twice"),
            ("noise_answer", "an answer of random bytes"),
        )
    ),
)


@dataclass(frozen=True)
class Calm:
    """The results of a run without a liar."""

    weights: dict[str, Any]
    peak_mib: dict[str, float]
    seconds: float


@cache
def calm(dataset: str) -> Calm:
    """Run once without a liar."""
    with (
        tempfile.TemporaryDirectory(prefix="hdpvfl-calm-") as folder,
        stage(Path(folder), dataset=dataset) as on,
    ):
        on.start()
        began = time.monotonic()
        codes = on.wait(on.started.names)
        seconds = time.monotonic() - began
        if set(codes.values()) != {0}:
            raise RuntimeError(f"the calm run did not complete: {codes}")
        weights = {p: on.weights(p) for p in on.started.demo.parties}
        return Calm(weights, dict(on.peak_mib), seconds)


def tell(told: Told, folder: Path) -> Row:
    """Run with a liar and judge."""
    usual = calm(told.dataset)
    with stage(folder, dataset=told.dataset) as on:
        on.start(told.liar, told.lie)
        honest = tuple(name for name in on.started.names if name != told.liar)
        began = time.monotonic()
        codes = on.wait(honest)
        row = _judged(told, on, codes, usual)
        seconds = f"after {time.monotonic() - began:.0f} s (calm: {usual.seconds:.0f} s)"
        return replace(row, cost=f"{row.cost}, {seconds}")


def _judged(told: Told, on: Stage, codes: dict[str, int | None], usual: Calm) -> Row:
    wrong = [
        p
        for p, code in codes.items()
        if p != COORDINATOR and code == 0 and on.weights(p) != usual.weights[p]
    ]
    hanging = [name for name, code in codes.items() if code is None]
    above = max(on.peak_mib.get(p, 0.0) - usual.peak_mib[p] for p in codes)
    noticed = {p: refused[0] for p in codes if (refused := _refused(on, p))}
    said = {p: text for p, code in codes.items() if code and (text := _last_line(on, p))}
    who, what = next(iter((noticed or said or {"nobody": ""}).items()))
    verdicts = () if hanging else on.verdicts(tuple(codes))
    is_whole = all(one == other != CONTRADICTION for one, other in verdicts)
    disk = max(on.journal_mib(p) for p in codes)
    is_small = above <= LIMIT_MIB and disk <= JOURNAL_MIB
    held = not wrong and not hanging and is_small and who != "nobody" and is_whole
    completed = all(code == 0 for code in codes.values())
    cost = "none: same models as without" if completed else f"the run: exit codes {_shown(codes)}"
    if above > 16:
        cost += f", {above:.0f} MiB of memory"
    if disk > 16:
        cost += f", {disk:.0f} MiB of journal"
    if wrong or hanging:
        cost = f"WRONG MODEL at {wrong}" if wrong else f"HANGING {hanging}"
    if not is_whole:
        cost = f"HONEST JOURNALS DISCREDITED, exit codes of both verifiers {verdicts}"
    return Row(told.name, told.liar, who, what[:140], cost, held)


def _refused(on: Stage, party: str) -> list[str]:
    """All refusals except those of copies, which also occur on any slow machine."""
    return [reason for reason in on.refusals(party) if not reason.startswith("a copy of")]


def _last_line(on: Stage, party: str) -> str:
    lines = on.started.said(party).strip().splitlines()
    return lines[-1].rsplit(".toml: ", 1)[-1] if lines else ""


def _shown(codes: dict[str, int | None]) -> str:
    return ", ".join(f"{name} {code}" for name, code in codes.items())


ATTACKS: dict[str, Callable[[Path], Row]] = {told.lie: partial(tell, told) for told in TOLD}
