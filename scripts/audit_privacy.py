"""Attack the privacy layer as an adversary who sees every message of many runs.

Prints, for sound runs and for thirteen planted bugs, the epsilon that is claimed and the lower
bound that the attacker reaches with 99.9 % confidence. Exit code 1 if a sound run breaks its claim
or a planted bug goes unnoticed. The scenarios are those of tests/privacy, with more runs.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "privacy"))

# mypy knows these two modules as tests.privacy.*, where strict mode is off.
from privacy_audit import Evidence  # type: ignore[import-not-found]  # in tests/privacy
from privacy_scenarios import SCENARIOS, SOUND  # type: ignore[import-not-found]  # in tests/privacy


def audited(name: str, scenario: Callable[[bool, int], Evidence], runs: int, *, bug: bool) -> bool:
    """Run one scenario, print a line, and return whether the result is as it must be."""
    evidence = scenario(bug, runs)
    above = bool(evidence.mu_lower() > evidence.claimed_mu)
    verdict = "caught" if above else ("MISSED" if bug else "kept")
    if above and not bug:
        verdict = "BROKEN"
    print(
        f"{'bug: ' if bug else '     '}{name:44s} claimed {evidence.claimed_epsilon:7.3f}"
        f"  found >= {evidence.epsilon_lower():7.3f}  {verdict}",
        flush=True,
    )
    return above == bug


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1_000_000, help="runs on each data set")
    runs = parser.parse_args().runs
    right = []
    for name, scenario in SOUND.items():
        right.append(
            audited(name, scenario, min(runs, 50_000) if "whole" in name else runs, bug=False)
        )
    for name, scenario in SCENARIOS.items():
        right += [audited(name, scenario, runs, bug=bug) for bug in (False, True)]
    print(f"{sum(right)} of {len(right)} as they must be")
    return 0 if all(right) else 1


if __name__ == "__main__":
    sys.exit(main())
