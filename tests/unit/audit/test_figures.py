"""A summary that says otherwise than the journals is noticed, whatever digest it states."""

from __future__ import annotations

import json

import pytest

from hdpvfl_mq.audit.figures import summary_differs, summary_digest
from tests.evidence import evidence_of
from tests.federation import Federation, manifest, tables


@pytest.fixture(scope="module")
def run():
    """Evidence of a run, and a summary as the demo writes it."""
    federation = Federation(manifest(epochs=1), tables(44))
    federation.simulate()
    evidence = evidence_of(federation)
    plan = evidence.plan
    assert plan is not None
    summary = {
        "run": "test-run",
        "guarantee": "sound",
        "loss": "logistic",
        "penalty": "l2",
        "epsilon": 1.0,
        "delta": 0.01,
        "seed": 7,
        "rows_common": plan.rows,
        "rounds": plan.rounds,
        "test": {"auc": 0.7},
        "parties": [
            {"name": "bank", "role": "active", "noise_std": plan.noise_of("active").noise_std},
            {"name": "shop", "role": "passive", "noise_std": plan.noise_of("passive").noise_std},
        ],
        "journals": {
            party: [len(t.rows), t.rows[-1][2].hex()] for party, t in evidence.transcripts.items()
        },
    }
    return evidence, summary


def judged(folder, left, *, restate: bool = True, **changes) -> str:
    evidence, summary = left
    changed = {**summary, "digest": summary_digest(summary), **changes}
    if restate:
        changed["digest"] = summary_digest(changed)
    path = folder / "summary.json"
    path.write_text(json.dumps(changed))
    return summary_differs(path, evidence)


def test_a_true_summary_holds(tmp_path, run):
    assert judged(tmp_path, run) == ""


@pytest.mark.parametrize(
    ("field", "value"),
    [("epsilon", 0.1), ("guarantee", "none"), ("rounds", 3), ("rows_common", 7), ("run", "other")],
)
def test_a_figure_that_the_journals_deny_is_named(tmp_path, run, field, value):
    assert field in judged(tmp_path, run, **{field: value})


def test_another_noise_is_named(tmp_path, run):
    parties = [{**run[1]["parties"][0], "noise_std": 1.0}, *run[1]["parties"][1:]]
    assert judged(tmp_path, run, parties=parties) == "noise_std of bank"


def test_a_summary_of_other_journals_is_named(tmp_path, run):
    journals = {**run[1]["journals"], "shop": [3, "00" * 32]}
    assert judged(tmp_path, run, journals=journals) == "the journal of shop"


def test_a_changed_evaluation_needs_another_digest(tmp_path, run):
    assert "digest" in judged(tmp_path, run, restate=False, test={"auc": 0.9})


def test_a_damaged_summary_is_no_summary(tmp_path, run):
    assert judged(tmp_path, run, parties=7) == "it cannot be read"
