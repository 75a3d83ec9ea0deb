"""The state of a service and of its runs, in one line each.

It owns the wording; it reads only the answer to `status`, so that console, log, service manager and
commands all show the same text.
"""

from __future__ import annotations

import math
from typing import Any

ENDED = ("over", "refused")
KEYS_KNOWN = "known to the others"  # the value of `keys` once the broker has the newest keys
LINE_MAX = 400


def run_in_short(run: dict[str, Any]) -> str:
    """One run in one line."""
    text = str(run["outcome"] or run["phase"])
    if run.get("rounds"):
        text += f", round {run.get('round', run['rounds'])} of {run['rounds']}"
    if run.get("epsilon_spent") is not None:
        text += f", epsilon spent {number(run['epsilon_spent'])}"
    if run.get("reveals"):
        text += f", reveals {run['reveals']}"
    if run.get("waiting_for"):
        text += f", waiting for {', '.join(run['waiting_for'])}"
    return f"{text} ({run['reason']})" if run.get("reason") else text


def budget_in_short(budget: dict[str, Any]) -> str:
    """The budget that is spent and left."""
    return (
        f"epsilon {number(budget['epsilon_spent'])} spent of {budget['epsilon_cap']:g}, "
        f"{number(budget['epsilon_left'])} left"
    )


def service_in_short(status: dict[str, Any]) -> str:
    """A service in one line: who is connected, what waits for whom, progress, spent and left."""
    if status["service"] == "broker":
        parts = [_federation(name, each) for name, each in status["federations"].items()]
    else:
        where = "connected" if status["connected"] else "NOT CONNECTED"
        waits = [name for name, run in status["runs"].items() if run["phase"] == "asked"]
        parts = [f"{status['party']} {where}", *_open(status["runs"])]
        parts += [f"{name} waits for 'hdpvfl approve {name}'" for name in waits]
        parts += [f"{name} waits for 'hdpvfl confirm'" for name in status["pairings"]]
        parts.append(budget_in_short(status["budget"]))
    return "; ".join(parts)[:LINE_MAX]


def _federation(name: str, federation: dict[str, Any]) -> str:
    here = set(federation["connected"])
    away = [party for party in federation["members"] if party not in here]
    text = f"{name}: {len(here)} of {len(federation['members'])} members connected"
    text += f", without {', '.join(away)}" if away else ""
    return "; ".join([text, *_open(federation["runs"])])


def _open(runs: dict[str, Any]) -> list[str]:
    live = {name: run for name, run in runs.items() if run["phase"] not in (*ENDED, "asked")}
    return [f"{name}: {run_in_short(run)}" for name, run in live.items()]


def finite(value: float) -> float | str:
    """A number as JSON can hold it: an infinite one becomes a word."""
    return value if math.isfinite(value) else "infinite"


def number(value: float | str) -> str:
    """A number with four digits; text, such as an infinite spend, stays as it is."""
    return value if isinstance(value, str) else f"{value:.4g}"
