"""What an operator is told of a run before agreeing to it."""

from __future__ import annotations

import argparse
from typing import Any

import pytest

from hdpvfl_mq.app.commands import services
from hdpvfl_mq.runtime.in_short import run_in_short
from parties.belonging import describe
from parties.run_phases import Asked
from schemas.methods import PrivateModel, Scoring
from tests.federation import manifest

ROWS = PrivateModel(disclosed_rows=20, held_out_rows=10)
STEPS = Scoring(model_run="spring", coarsen=0.25)
SHOWN: dict[str, dict[str, Any]] = {
    "exact scores of up to 30 rows, by seed 7": {"method": ROWS},
    "bounded noise": {"method": PrivateModel(noise="bounded")},
    "exact scores of whom it asks for": {"method": Scoring(model_run="spring"), "budget": None},
    "scores in steps of 0.25": {"method": STEPS, "budget": None},
}


@pytest.mark.parametrize("words", SHOWN)
def test_an_operator_reads_what_epsilon_does_not_show(words, monkeypatch, capsys):
    """Bug: a request for disclosed rows read like one in which epsilon holds for everybody."""
    run = describe(Asked(manifest(**SHOWN[words])))
    assert words in run_in_short(run)
    monkeypatch.setattr(services, "ask", lambda *_: {"requests": {"spring-1": run}})
    services.requests(argparse.Namespace(json=False))
    assert f"reveals {words}" in capsys.readouterr().out


def test_a_run_in_which_everything_is_noised_reveals_nothing_more():
    run = describe(Asked(manifest(method=PrivateModel())))
    assert run["reveals"] == ""
    assert "reveals" not in run_in_short(run)
