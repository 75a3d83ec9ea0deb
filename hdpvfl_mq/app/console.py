"""Console output during a run and at its end.

It owns the words and tables on the console; every number comes from the processes' status files.
A terminal gets a live progress bar, any other output one line per change.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table as RichTable

from hdpvfl_mq.app.joining import held_out_lines
from hdpvfl_mq.runtime import in_short
from schemas.ids import COORDINATOR

Statuses = Mapping[str, dict[str, Any]]
LONG_RESOLUTION = 16  # show progress from this many blocks on


class Watcher:
    """Turns status files into lines of output and a progress bar."""

    def __init__(self, console: Console, active: str, *, is_scoring: bool = False) -> None:
        self._console, self._active, self._is_scoring = console, active, is_scoring
        self._told: set[str] = set()
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}"),
            console=console,
            transient=True,
        )
        self._blocks = self._bar.add_task("resolving", total=None, visible=False, note="blocks")
        self._task = self._bar.add_task(
            "scoring" if is_scoring else "training", total=None, visible=False, note=""
        )

    def __enter__(self) -> Watcher:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def show(self, statuses: Statuses) -> None:
        """Print what has changed."""
        coordinator = statuses.get(COORDINATOR, {})
        for party in coordinator.get("joined", []):
            self._say(f"joined     {party}")
        active = statuses.get(self._active, {})
        if active.get("phase") in ("aligning", "aligned", "training", "closed"):
            self._show_blocks(active)
        waiting = active.get("waiting_for") or ()
        if waiting and active.get("phase") == "training":
            self._say(f"waiting    for {', '.join(waiting)}")
        self._show_rounds(statuses, active)

    def _show_blocks(self, active: dict[str, Any]) -> None:
        """Progress of entity resolution: a bar on a terminal, otherwise a line for each quarter."""
        kept, rows = active.get("align_kept"), active.get("rows_common")
        if not kept:
            self._say("resolving  common entities, without showing ids")
        done, total = active.get("align") or (0, 0)
        is_long = active.get("phase") == "aligning" and total >= LONG_RESOLUTION
        self._bar.update(self._blocks, total=total, completed=done, visible=is_long)
        if is_long and not self._console.is_terminal and (quarter := 4 * done // total):
            self._say(f"resolving  {25 * quarter} % of {total} blocks")
        if rows:
            again = "" if self._is_scoring else " (--resolve-again finds them again)"
            note = f", kept from an earlier run{again}" if kept else ""
            self._say(f"resolved   {rows:,} common rows{note}")

    def _show_rounds(self, statuses: Statuses, active: dict[str, Any]) -> None:
        rounds, done = active.get("rounds", 0), active.get("round", 0)
        if not rounds or active.get("phase") not in ("training", "closed"):
            return
        speed = rounds_per_s(active) if rounds > 1 else None
        note = f"{speed:.0f} rounds/s" if speed else ""
        if active.get("loss") is not None:
            note += f"{', ' if note else ''}own loss {active['loss']:.4f}"
        self._bar.update(self._task, total=rounds, completed=done, visible=True, note=note)
        if all(fields.get("phase") == "closed" for fields in statuses.values()):
            if self._is_scoring:  # the table at the end says what that cost, and whom
                return
            self._say(f"trained    {plural(rounds, 'round')}{', ' if note else ''}{note}")
            self._say(f"spent      {spent_text(statuses)}")

    def _say(self, text: str) -> None:
        if text.split(",", maxsplit=1)[0] not in self._told:
            self._told.add(text.split(",", maxsplit=1)[0])
            self._bar.console.print(text, highlight=False)


def rounds_per_s(active: dict[str, Any]) -> float | None:
    """Training rounds per second, by the active party's clock."""
    done, elapsed_s = active.get("round", 0), active.get("training_s") or 0.0
    return done / elapsed_s if done and elapsed_s > 0 else None


def plural(count: int, noun: str) -> str:
    """A count with its noun."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def spent_text(statuses: Statuses) -> str:
    """Epsilon spent so far by every party."""
    parts = [
        f"{name} {number(fields['epsilon_spent'])}"
        for name, fields in statuses.items()
        if fields.get("epsilon_spent") is not None
    ]
    shown = parts if len(parts) <= 3 else [*parts[:2], f"and {len(parts) - 2} more"]
    return "epsilon: " + ", ".join(shown)


def number(value: Any) -> str:
    """A number formatted for reading; a dash if there is none."""
    return "-" if value is None else in_short.number(value)


def closing(
    console: Console, summary: dict[str, Any], files: dict[str, str], *, folder: str = "."
) -> None:
    """Print the final tables, where the files are, and what to type next in the run's folder."""
    claim = (
        "no privacy"
        if summary["epsilon"] is None
        else (f"epsilon {summary['epsilon']:g} at delta {summary['delta']:g}")
    )
    console.print(
        f"\n{summary['run']}: {summary['loss']}, {summary['penalty']} penalty, "
        f"{summary['guarantee']} ({claim}), {plural(summary['rounds'], 'round')}",
        highlight=False,
    )
    console.print(f"guarantee: {summary['guarantee_label']}", style="dim", highlight=False)
    if summary["delta_warning"]:
        console.print(f"warning: {summary['delta_warning']}", style="dim", highlight=False)
    console.print(_parties_table(summary))
    console.print(in_one_sentence(_largest_spend(summary), summary["delta"]), highlight=False)
    if any(r.get("disclosed_rows") for p in summary["parties"] for r in p.get("releases", ())):
        console.print("this does not hold for people whose rows were disclosed by agreement")
    for line in held_out_lines(summary["partners"]):
        console.print(line, highlight=False)
    scores_and_files(console, summary["test"], files)
    if folder != ".":
        console.print(f"next      cd {folder}", highlight=False, soft_wrap=True)
    console.print(NEXT, highlight=False, soft_wrap=True)


NEXT = """next      hdpvfl predict     score people with this model
          hdpvfl audit       check what left, as an outsider would
          hdpvfl report      a page for each party
          hdpvfl evidence    one signed file for an auditor"""


def _largest_spend(summary: dict[str, Any]) -> float:
    """Epsilon that the ledgers booked, of the party that spent most; the claim may be less."""
    spends = [party["epsilon_spent"] for party in summary["parties"]]
    return max(math.inf if isinstance(spent, str) else float(spent) for spent in spends)


def in_one_sentence(epsilon: float, delta: float | None) -> str:
    """What a spend means for a person, bounded by (e^epsilon + delta) / (1 + e^epsilon)."""
    if math.isinf(epsilon) or delta is None:
        return "no privacy: anybody who saw the messages may know everything about everybody"
    right = 100 - 100 * (1 - delta) / (1 + math.exp(min(epsilon, 700.0)))
    return (
        f"epsilon {epsilon:.4g} means: an attacker who saw every message of this run and must tell "
        f"which of two rows a person has at one party is right at most {right:.3g} times in 100 (a "
        "blind guess: 50)"
    )


def scores_and_files(console: Console, test: dict[str, Any], files: dict[str, str]) -> None:
    """Print the lines that end the output of every run."""
    console.print(_test_table(test))
    console.print(f"test scores: {test['evaluation']}", style="dim", highlight=False)
    for name, path in files.items():
        console.print(f"{name:9} {path}", highlight=False, soft_wrap=True)


def _parties_table(summary: dict[str, Any]) -> RichTable:
    table = RichTable(box=None, pad_edge=False, header_style="bold")
    table.add_column("party")
    for title in ("rows", "columns", "epsilon", "lifetime", "delta", "noise", "sent", "received"):
        table.add_column(title, justify="right")
    for party in summary["parties"]:
        table.add_row(
            party["name"],
            f"{party['rows']:,}",
            str(party["columns"]),
            number(party["epsilon_spent"]),
            number(party["epsilon_lifetime"]),
            number(party["delta"]),
            number(party["noise_std"]),
            size(party["bytes_sent"]),
            size(party["bytes_received"]),
        )
    return table


def _test_table(test: dict[str, Any]) -> RichTable:
    measures = [key for key in ("accuracy", "auc", "d2") if key in test]
    table = RichTable(box=None, pad_edge=False, header_style="bold")
    table.add_column(f"test, {test['rows']} rows")
    for measure in measures:
        table.add_column(measure, justify="right")
    names = {"joint model": test, "active alone": test["active_alone"]}
    names["all in one place, no privacy"] = test["central"]
    for name, values in names.items():
        table.add_row(name, *(f"{values[measure]:.4f}" for measure in measures))
    return table


def size(count: int) -> str:
    """A number of bytes formatted for reading."""
    if count < 1000:
        return f"{count} B"
    thousands = min(int(math.log10(count) / 3), 3)
    return f"{count / 1000**thousands:.1f} {('kB', 'MB', 'GB')[thousands - 1]}"


COSTS_OF_SCORES = {
    "nobody": "the scores are exact, so each scored person's score is disclosed to the active "
    "party; the rows that trained the model pay nothing (docs/scored-people.md)",
    "scored people": "each score costs the scored person epsilon {epsilon:g} at delta {delta:g}; "
    "the rows that trained the model pay nothing (docs/scored-people.md)",
    "rows": "epsilon is charged to the rows that trained the model and to those that are scored",
}


def scores(console: Console, result: dict[str, Any]) -> None:
    """Print a prediction's cost for each party, its quality if labels are known, and its file."""
    table = RichTable(box=None, pad_edge=False, header_style="bold")
    table.add_column("party")
    for title in ("noise", "epsilon", "lifetime"):
        table.add_column(title, justify="right")
    for party in result["parties"]:
        cells = (party["noise_std"], party["epsilon_spent"], party["epsilon_lifetime"])
        table.add_row(party["name"], *map(number, cells))
    console.print(table)
    test = result.get("test", {})
    figures = ", ".join(f"{k} {v:.3f}" for k, v in test.items() if isinstance(v, float))
    judged = f"; against their labels: {figures}" if figures else ""
    console.print(COSTS_OF_SCORES[result["charged_to"]].format(**result), highlight=False)
    console.print(f"{result['rows_scored']:,} people scored{judged}", highlight=False)
    alone = result.get("active_alone", {})
    if figures := ", ".join(f"{k} {v:.3f}" for k, v in alone.items() if k in test):
        console.print(f"the active party alone: {figures}", highlight=False)
    path = os.path.relpath(result["predictions"])
    console.print(f"predictions  {path}", soft_wrap=True, highlight=False)
