"""Metrics of a service as Prometheus text: a closed list, taken from the answer to `status`.

It owns names, labels and the text; nothing here can hold a value from anybody's rows. Labels are
names of runs, parties, federations, data sets and phases.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from hdpvfl_mq.runtime.in_short import ENDED

# name -> (type, labels, help text)
METRICS: dict[str, tuple[str, tuple[str, ...], str]] = {
    "info": ("gauge", ("service", "version"), "Always 1."),
    "connected": ("gauge", (), "1 while connected to the broker."),
    "members": ("gauge", ("federation",), "Members of a federation."),
    "members_connected": ("gauge", ("federation",), "Members whose service is connected."),
    "sent_bytes_total": ("counter", (), "Bytes sent by this process."),
    "received_bytes_total": ("counter", (), "Bytes received by this process."),
    "resends_total": ("counter", (), "Envelopes sent again from the journal."),
    "refusals_total": ("counter", (), "Envelopes and moves refused."),
    "queue_messages": ("gauge", ("stream",), "Messages that have arrived and wait for a turn."),
    "unacknowledged": ("gauge", ("stream",), "Envelopes some peer has not recorded yet."),
    "runs": ("gauge", ("phase",), "Runs this service knows, by phase."),
    "run_round": ("gauge", ("run",), "Round that an open run has reached."),
    "run_rounds": ("gauge", ("run",), "Rounds an open run has planned."),
    "run_waiting_for": ("gauge", ("run", "party"), "1 for a party that an open run waits for."),
    "epsilon_spent": ("gauge", ("dataset",), "Epsilon of what has left, at the cap's delta."),
    "epsilon_left": ("gauge", ("dataset",), "Epsilon of the largest run that still fits."),
    "epsilon_cap": ("gauge", ("dataset",), "Lifetime epsilon of the policy."),
}


@dataclass
class Tally:
    """Counters of a running process."""

    resends: int = 0
    refusals: int = 0


@dataclass(frozen=True)
class Sample:
    """One value of a metric, with its labels."""

    name: str
    value: float
    labels: Mapping[str, str] = field(default_factory=dict)


def samples(status: dict[str, Any]) -> Iterator[Sample]:
    """Every metric of a service."""
    yield Sample("info", 1, {"service": status["service"], "version": status["version"]})
    for name, value in status["traffic"].items():
        yield Sample(f"{name}_total", value)
    for stream, queue in status["queues"].items():
        for name, value in queue.items():
            yield Sample(name, value, {"stream": stream})
    if status["service"] == "broker":
        runs: dict[str, Any] = {}
        for name, federation in status["federations"].items():
            runs |= federation["runs"]
            label = {"federation": name}
            yield Sample("members", len(federation["members"]), label)
            yield Sample("members_connected", len(federation["connected"]), label)
    else:
        runs = status["runs"]
        yield Sample("connected", float(status["connected"]))
        budget = status["budget"]
        for name in ("epsilon_spent", "epsilon_left", "epsilon_cap"):
            value = budget[name]
            yield Sample(
                name,
                float("inf") if isinstance(value, str) else value,
                {"dataset": budget["dataset"]},
            )
    yield from _runs(runs)


def _runs(runs: dict[str, Any]) -> Iterator[Sample]:
    for phase, count in sorted(Counter(run["phase"] for run in runs.values()).items()):
        yield Sample("runs", count, {"phase": phase})
    for name, run in runs.items():
        if run["phase"] in ENDED:  # after some years there are many ended runs
            continue
        if run.get("rounds") is not None:
            yield Sample("run_rounds", run["rounds"], {"run": name})
        if run.get("round") is not None:
            yield Sample("run_round", run["round"], {"run": name})
        for party in run.get("waiting_for") or ():
            yield Sample("run_waiting_for", 1, {"run": name, "party": party})


def render(found: Iterable[Sample]) -> str:
    """The Prometheus exposition text; a name or label that is not on the list is a bug here."""
    by_name: dict[str, list[Sample]] = {}
    for sample in found:
        if set(sample.labels) != set(METRICS[sample.name][1]):
            raise AssertionError(f"{sample.name} {sorted(sample.labels)} is not on the list")
        by_name.setdefault(sample.name, []).append(sample)
    lines = []
    for name, (kind, labels, text) in METRICS.items():
        if name not in by_name:
            continue
        lines += [f"# HELP hdpvfl_{name} {text}", f"# TYPE hdpvfl_{name} {kind}"]
        for sample in by_name[name]:
            inner = ",".join(f'{label}="{_escaped(sample.labels[label])}"' for label in labels)
            lines.append(f"hdpvfl_{name}{f'{{{inner}}}' if inner else ''} {_number(sample.value)}")
    return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    return "+Inf" if value == float("inf") else f"{value:.12g}"
