"""Prints the reference comparison as one table at the end of a test run."""

from __future__ import annotations

from typing import Any

HEADER = (
    f"{'loss':<16}{'penalty':<13}{'data':<10}{'reference':<28}"
    f"{'weights':<10}{'predictions':<13}objective"
)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    lines = [
        f"{value}{'' if outcome == 'passed' else '   FAILED'}"
        for outcome in ("passed", "failed")
        for report in terminalreporter.stats.get(outcome, [])
        for name, value in getattr(report, "user_properties", [])
        if name == "reference" and report.when == "call"
    ]
    if lines:
        terminalreporter.section("relative difference from the reference libraries")
        for line in [HEADER, *lines]:
            terminalreporter.write_line(line)
