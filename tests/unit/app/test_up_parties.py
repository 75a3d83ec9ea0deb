"""`hdpvfl up` with other numbers of passive processes than the usual two."""

from __future__ import annotations

import json

import pytest

from tests.integration.processes import hdpvfl

pytestmark = pytest.mark.seconds


@pytest.mark.parametrize("passives", [5, pytest.param(16, marks=pytest.mark.slow)])
def test_columns_are_dealt_to_many_passive_processes(tmp_path, passives):
    options = ("--passives", passives, "--dataset", "breast", "--epsilon", "1", "--seed", "7")
    done = hdpvfl("up", *options, "--json", cwd=tmp_path, wait_s=400.0)
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    parties = summary["parties"]
    assert len(parties) == passives + 1
    assert sum(party["columns"] for party in parties) == 30
    assert all(0.0 < party["epsilon_spent"] <= 1.0 for party in parties)
    assert json.loads((tmp_path / "runs" / "latest" / "summary.json").read_text()) == summary
