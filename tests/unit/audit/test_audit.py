"""Both verifiers on every tampered case, and no alarm on honest runs.

Removing any one numbered check makes `test_removing_a_check_blinds_the_audit` fail for its number.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from hdpvfl_mq.audit.audit import CHECKS, audit, exit_code
from hdpvfl_mq.audit.evidence import Evidence
from hdpvfl_mq.runtime.simulation import Faults
from schemas.config import AlignmentSpec, IdRules
from schemas.methods import EarlyStop
from schemas.privacy import Budget
from scripts import verify_journal
from tests.evidence import evidence_of, write_run
from tests.federation import Federation, manifest, policy, tables
from tests.unit.audit.cases import CASES, Case
from tests.unit.audit.cheats import honest_slots
from tests.unit.audit.honest import honest

pytestmark = pytest.mark.seconds

PLAIN = {"guarantee": "none", "budget": None}
UNKIND = Faults(loss=0.1, copies=0.1, delay_s=0.05, crashes=2, crash_window_s=1.0)
AWAY = {"absent_after_s": 2.0, "rounds_ahead": 4}
GONE = Faults(delay_s=0.05, absences=(("shop", 1.2, 4.0),))
FEW = AlignmentSpec(ids=IdRules(kind="integer"), rows_min=119)


def independent(evidence, folder: Path) -> dict[int, str]:
    return verify_journal.verify(write_run(evidence, folder))


@cache
def made(case: Case) -> Evidence:
    """Evidence that two tests read."""
    return case.make()


def independent_exit(found: dict[int, str]) -> int:
    return 0 if not found else 5 if min(found) <= 5 else 1


def failed(verdicts) -> set[int]:
    return {verdict.number for verdict in verdicts if not verdict.passed}


def test_an_honest_run_raises_no_alarm(tmp_path):
    assert failed(audit(honest())) == set()
    assert independent(honest(), tmp_path) == {}


def test_an_honest_ledger_with_pure_slots_raises_no_alarm(tmp_path):
    # The heads that were signed are those of the run's own ledger, so check 10 must speak here.
    assert failed(audit(honest_slots())) <= {10}
    assert set(independent(honest_slots(), tmp_path)) <= {10}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_both_verifiers_notice(case, tmp_path):
    evidence = made(case)
    verdicts = audit(evidence)
    assert case.number in failed(verdicts)
    assert not case.alone or failed(verdicts) == {case.number}
    named = next(v.found for v in verdicts if v.number == case.number)
    assert "cannot be checked" not in named
    assert independent_exit(independent(evidence, tmp_path)) == exit_code(verdicts)


@pytest.mark.parametrize("numbered", CHECKS, ids=lambda numbered: str(numbered.number))
def test_removing_a_check_blinds_the_audit(numbered):
    """Each check is the only one to notice some case, so none of them can be left out."""
    case = next(case for case in CASES if case.number == numbered.number and case.alone)
    evidence = made(case)
    assert exit_code(audit(evidence)) != 0
    rest = [other for other in CHECKS if other is not numbered]
    assert exit_code(audit(evidence, rest)) == 0


REPEATED = pytest.mark.slow  # more of the same, for make soak


@pytest.mark.parametrize("block", [0, *(pytest.param(n, marks=REPEATED) for n in range(1, 20))])
def test_100_honest_runs_raise_no_alarm(block, tmp_path):
    for seed in range(block * 5, block * 5 + 5):
        changes = PLAIN if seed % 5 == 4 else {}
        federation = Federation(manifest(batch_rows=20, **changes), tables(44, seed=seed))
        federation.simulate(seed=seed, faults=UNKIND if seed % 2 else None)
        evidence = evidence_of(federation)
        assert failed(audit(evidence)) == set(), f"seed {seed}"
        if seed % 5 == 0:
            assert independent(evidence, tmp_path / str(seed)) == {}, f"seed {seed}"


ENDINGS = {
    "left out": ({"epochs": 12, "absence": "nothing", **AWAY}, {}, GONE),
    "last block": ({"epochs": 12, "absence": "last", **AWAY}, {}, GONE),
    "early stop": ({"early_stop": EarlyStop(patience=1, tolerance=0.5)}, {}, None),
    "refused": ({}, {"shop": policy(run_epsilon_max=0.5)}, None),
    "over the cap": ({}, {"shop": policy(lifetime=Budget(epsilon=0.9, delta=0.01))}, None),
    "deadline": ({"deadline_s": 3.0}, {}, Faults(delay_s=0.2)),
    "too few rows": ({"alignment": FEW}, {}, None),
}


@pytest.mark.parametrize("name", ENDINGS)
def test_honest_runs_with_other_endings_raise_no_alarm(name, tmp_path):
    changes, policies, faults = ENDINGS[name]
    federation = Federation(manifest(**changes), policies=policies)
    federation.simulate(faults=faults)
    evidence = evidence_of(federation)
    assert failed(audit(evidence)) == set()
    assert independent(evidence, tmp_path) == {}
