"""The page of results: text, tables and figures, every number from a CSV.

It owns the order of the sections, the head and the limits; each section has its own module.
"""

# ruff: noqa: E501 - lines of prose
from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from scripts.reproduction.page_attacks import attacked, variants
from scripts.reproduction.page_choices import question_2
from scripts.reproduction.page_differences import differences
from scripts.reproduction.page_quality import met_targets, question_1, real_cost
from scripts.reproduction.page_recovery import recovered
from scripts.reproduction.page_time import question_3
from scripts.reproduction.tables import Tables, markdown


def compose(found: Tables, drawn: Sequence[str], notes: dict[str, Any]) -> str:
    """Compose the whole page."""
    sections: Iterable[Callable[[], str]] = (
        lambda: _head(notes),
        lambda: met_targets(found["q1"]),
        lambda: recovered(found["recovery"]),
        lambda: question_1(found["q1"], drawn),
        lambda: real_cost(found["q1"]),
        lambda: question_2(found, drawn),
        lambda: question_3(found, drawn),
        lambda: differences(found),
        lambda: attacked(found["attacks"], drawn),
        lambda: variants(found["variants"]),
        _limits,
    )
    return "\n\n".join(text for make in sections if (text := make())) + "\n"


def _head(notes: dict[str, Any]) -> str:
    parts = notes["parts"]
    total = sum(part["seconds"] for part in parts.values())
    commands = ", ".join(f"`{c}`" for c in dict.fromkeys(p["command"] for p in parts.values()))
    libraries = ", ".join(f"{name} {number}" for name, number in notes["versions"].items())
    rows = [
        (name, f"{p['seconds']:.0f}", p["jobs"], p["load_5_min"], p["date"], p["commit"])
        for name, p in parts.items()
    ]
    table = markdown(
        ("part", "seconds", "processes", "load of the machine", "date", "commit"), rows
    )
    return f"""# The evaluation of the paper, run again

{commands}; {notes["machine"]}; {len(parts)} parts, {total / 60:.0f} minutes
added up. {libraries}.

All VFL runs with or without noise are whole federations of production roles (`Rehearsal`: entity
resolution, signatures, journals, ledgers), two parties, the paper's vertical split. Rows are sorted
by id and split 80/20 at random, unstratified, by numpy's generator with seeds 0 to 9; constants of
preprocessing come from the training rows (so every epsilon here is conditional on them), Adult's
categories are one-hot, then every party scales its rows to norm at most 1. References are
scikit-learn's logistic regression, C = 1, on the same row-scaled columns unless it says otherwise.
Cells are accuracy / AUC, means over the splits. The same seeds give the same figures, times apart. {_commits(parts)}
Seconds are those of a machine with the load shown, which has as many cores as said above.

{table}"""


def _commits(parts: dict[str, Any]) -> str:
    """Which sources the page is of; a plus marks files that differ from the commit."""
    commits = dict.fromkeys(part["commit"] for part in parts.values())
    if len(commits) == 1:
        return f"All parts ran on commit {next(iter(commits))}."
    return f"The parts ran on {len(commits)} commits, as the table shows."


def _limits() -> str:
    return """## Limits

- Two parties; one draw of noise per split in Q1, five on breast. The splits overlap, so standard deviations are not those of new data.
- Constants of preprocessing are fitted to the training rows and not charged, in all methods.
- The paper's full text was not at hand: its claims are taken from a description of it, its figures were not compared point by point.
- Adult's vertical split (6 numeric, 8 categorical columns) is assumed from the column counts.
- HE-VFL has no sockets and its accuracy comes from the same protocol without the cipher."""
