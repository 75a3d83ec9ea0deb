"""The page's text on Q3: the time that training takes, and that encryption would take.

It owns this text; every number comes from the rows it is given.
"""

# ruff: noqa: E501 - lines of prose
from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

from scripts.reproduction import methods, timing
from scripts.reproduction.tables import Row, Tables, chosen, markdown, mean, values


def question_3(found: Tables, drawn: Sequence[str]) -> str:
    q3, he = found["q3"], found["he"]
    text = []
    if q3:
        text += ["## Q3: time", "![](q3.png)", _ratios(q3)]
    if he:
        text.append(_encrypted(he, q3))
    return "\n\n".join(text)


def _ratio(q3: Sequence[Row], method: str, measure: str, **where: Any) -> list[float]:
    """Ratios to non-private VFL in the same repetition, sorted."""
    ratios = []
    for repetition in values(q3, "repetition"):
        rows = chosen(q3, repetition=repetition, **where)
        base = mean(chosen(rows, method=methods.NON_PRIVATE), measure)
        ratios.append(mean(chosen(rows, method=method), measure) / base)
    return sorted(ratios)


def _ratios(q3: Sequence[Row]) -> str:
    lines = []
    for part, by in (("epochs", "epochs"), ("rows", "rows")):
        for point in values(chosen(q3, part=part), by):
            where = {"part": part, by: point}
            base = chosen(q3, method=methods.NON_PRIVATE, **where)
            cells = []
            for method in (methods.PUBLISHED, timing.SOUND_DESCENT, methods.SOUND):
                cells.append(_ratio_cell(q3, method, where))
            size = f"{base[0]['rows']:,.0f}", f"{base[0]['epochs']:g}"
            took = " / ".join(f"{1000 * mean(base, m):.0f}" for m in ("computing", "seconds"))
            lines.append((*size, took, *cells))
    header = (
        "rows",
        "epochs",
        f"{methods.NON_PRIVATE}, ms: computing / clock",
        "as published",
        "sound, descent",
        "sound, recommended",
    )
    return f"""Broker, active and passive party are processes that talk over encrypted sockets on this machine;
{timing.COLUMNS[0]} + {timing.COLUMNS[1]} columns of made-up rows, b = {timing.BATCH_ROWS}. Training phase only. Methods follow each other within
a repetition ({len(values(q3, "repetition"))} of them); cells are ratios of computing time of both parties, then of the clock: median (smallest-largest).
{_shared(q3)} Epochs come from the clock of one long run.
Epsilon is {timing.EPSILON:g}; others were not timed. The recommended method has one round whatever the epochs.

{markdown(header, lines)}"""


def _shared(q3: Sequence[Row]) -> str:
    """What else the machine did; three busy processes of a timed run make a load of up to three."""
    load = max(row["load"] for row in q3)
    if load <= 4.0:
        return f"Nothing else ran on the machine (its load was at most {load:.1f}, which these processes make)."
    return f"""The machine was shared while this ran (its load was up to {load:.0f}): the clock mostly shows its other users, and computing time
still varies by tens of per cent, so differences of that size mean nothing."""


def _ratio_cell(q3: Sequence[Row], method: str, where: dict[str, Any]) -> str:
    if not chosen(q3, method=method, **where):
        return ""
    computing, clock = (_ratio(q3, method, m, **where) for m in ("computing", "seconds"))
    spans = (f"{median(r):.2f} ({r[0]:.2f}-{r[-1]:.2f})" for r in (computing, clock))
    return ", ".join(spans)


def base_seconds(q3: Sequence[Row]) -> float:
    """Computing time of one epoch of 10,000 rows without privacy."""
    rows = chosen(q3, part="rows", method=methods.NON_PRIVATE, rows=10_000.0)
    return mean(rows, "computing")


def _encrypted(he: Sequence[Row], q3: Sequence[Row]) -> str:
    base = base_seconds(q3)
    lines = []
    for row in he:
        if row.get("missing"):
            lines.append((row["cipher"], row["missing"], "", "", "", "", ""))
            continue
        scaled = row["seconds_10000_rows"]
        lines.append(
            (
                row["cipher"],
                f"{row['rows']:,.0f}",
                f"{row['seconds']:.1f} s",
                f"{scaled:,.1f} s",
                f"{scaled / base:,.0f}" if base > 0.0 else "",
                f"{row['bytes_10000_rows'] / 1e6:.0f} MB",
                f"{row['largest_difference']:.0e}",
            )
        )
    header = (
        "cipher",
        "rows measured",
        "one epoch",
        "scaled to 10,000 rows",
        "ratio to VFL without privacy",
        "bytes",
        "difference of the weights",
    )
    return f"""### HE-VFL

After Hardy et al. (2017): Taylor polynomial of the loss, arbiter with the key, masked gradients; Paillier
with `phe` and gmpy2, CKKS with `tenseal` (`pip install -r requirements-he.txt`). Measured in one process
without sockets on the rows shown, one epoch, and **scaled**: by rows, masks and decryption by
batches; computing time of all parties,
compared with that of both parties without privacy.

{markdown(header, lines)}"""
