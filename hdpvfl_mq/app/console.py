"""What a person sees while a run goes on and when it is over.

It owns the words and tables on the console; every number comes from the processes' status files.
On a terminal there is a live bar, elsewhere one line per news.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table as RichTable

from schemas.ids import COORDINATOR

Statuses = Mapping[str, dict[str, Any]]
LONG_RESOLUTION = 16  # blocks from which on a progress is shown


class Watcher:
    """Turns status files into news and a progress bar."""

    def __init__(self, console: Console, active: str) -> None:
        self._console, self._active = console, active
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
        self._task = self._bar.add_task("training", total=None, visible=False, note="")

    def __enter__(self) -> Watcher:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def show(self, statuses: Statuses) -> None:
        """Tell what is new."""
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
        """How far entity resolution is: a bar on a terminal, elsewhere a line for each quarter."""
        kept, rows = active.get("align_kept"), active.get("rows_common")
        if not kept:
            self._say("resolving  common entities, without showing ids")
        done, total = active.get("align") or (0, 0)
        is_long = active.get("phase") == "aligning" and total >= LONG_RESOLUTION
        self._bar.update(self._blocks, total=total, completed=done, visible=is_long)
        if is_long and not self._console.is_terminal and (quarter := 4 * done // total):
            self._say(f"resolving  {25 * quarter} % of {total} blocks")
        if rows:
            note = ", kept from an earlier run (--resolve-again finds them again)" if kept else ""
            self._say(f"resolved   {rows:,} common rows{note}")

    def _show_rounds(self, statuses: Statuses, active: dict[str, Any]) -> None:
        rounds, done = active.get("rounds", 0), active.get("round", 0)
        if not rounds or active.get("phase") not in ("training", "closed"):
            return
        speed = rounds_per_s(active)
        note = f"{speed:.0f} rounds/s  " if speed else ""
        note += spent_text(statuses)
        if active.get("loss") is not None:
            note += f"  own loss {active['loss']:.4f}"
        self._bar.update(self._task, total=rounds, completed=done, visible=True, note=note)
        if all(fields.get("phase") == "closed" for fields in statuses.values()):
            self._say(f"trained    {plural(rounds, 'round')}, {note}")

    def _say(self, text: str) -> None:
        if text.split(",", maxsplit=1)[0] not in self._told:
            self._told.add(text.split(",", maxsplit=1)[0])
            self._bar.console.print(text, highlight=False)


def rounds_per_s(active: dict[str, Any]) -> float | None:
    """Rounds a second of training, by the active party's own clock."""
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
    shown = parts if len(parts) <= 4 else [*parts[:3], f"and {len(parts) - 3} more"]
    return "epsilon spent: " + ", ".join(shown)


def number(value: Any) -> str:
    """A number for people."""
    if value is None:
        return "-"
    return value if isinstance(value, str) else f"{value:.4g}"


def closing(console: Console, summary: dict[str, Any], files: dict[str, str]) -> None:
    """The tables at the end and where the files are."""
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
    scores_and_files(console, summary["test"], files)


def scores_and_files(console: Console, test: dict[str, Any], files: dict[str, str]) -> None:
    """The last lines of every closing."""
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
    """Bytes for people."""
    if count < 1000:
        return f"{count} B"
    thousands = min(int(math.log10(count) / 3), 3)
    return f"{count / 1000**thousands:.1f} {('kB', 'MB', 'GB')[thousands - 1]}"


def scores(console: Console, result: dict[str, Any]) -> None:
    """What a prediction cost each party, how good it is where labels are known, where it lies."""
    table = RichTable(box=None, pad_edge=False, header_style="bold")
    for title in ("party", "noise std", "epsilon of these scores", "epsilon in all"):
        table.add_column(title)
    for party in result["parties"]:
        cells = (party["noise_std"], party["epsilon_spent"], party["epsilon_lifetime"])
        table.add_row(party["name"], *map(number, cells))
    console.print(table)
    test = result.get("test", {})
    figures = ", ".join(f"{k} {v:.3f}" for k, v in test.items() if isinstance(v, float))
    judged = f"; against their labels: {figures}" if figures else ""
    console.print(f"{result['rows_scored']} rows scored{judged}")
    console.print(f"predictions  {result['predictions']}", soft_wrap=True, highlight=False)
