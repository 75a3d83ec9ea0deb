"""The empirical audit, short: sound runs keep their claim, thirteen planted bugs are caught.

`scripts/audit_privacy.py` runs the same with more runs.
"""

from __future__ import annotations

import numpy as np
import pytest
from privacy_audit import Evidence
from privacy_scenarios import SCENARIOS, SOUND

RUNS = 60_000


@pytest.mark.parametrize("name", SOUND)
def test_a_sound_run_keeps_its_claim(name: str) -> None:
    evidence = SOUND[name](False, 20_000 if "whole" in name else RUNS)
    assert evidence.epsilon_lower() <= evidence.claimed_epsilon
    if "whole" not in name:
        assert evidence.epsilon_lower() > 0.9 * evidence.claimed_epsilon


def test_there_are_thirteen_planted_bugs() -> None:
    assert len(SCENARIOS) == 13


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_planted_bug_is_caught_and_its_absence_is_not_accused(name: str) -> None:
    clean, broken = SCENARIOS[name](False, RUNS), SCENARIOS[name](True, RUNS)
    assert clean.mu_lower() <= clean.claimed_mu
    assert broken.mu_lower() > broken.claimed_mu


def test_the_audit_seldom_accuses_an_exact_gaussian() -> None:
    rng = np.random.default_rng(2)
    accused = 0
    for _ in range(200):
        first, second = rng.normal(size=(2, 1, 2000))
        accused += Evidence(1.0, 0.01, first, second + 1.0).mu_lower() > 1.0
    assert accused <= 2
