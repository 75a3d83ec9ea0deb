"""The bench's report: targets that can fail, regressions that are noticed, a floor that runs."""

from __future__ import annotations

import json

import pytest

from scripts.benches import floor, picture, report, targets
from scripts.benches.row import Row


@pytest.fixture
def no_picture(monkeypatch):
    """Drawing takes longer than all else here; two tests look at pictures."""
    monkeypatch.setattr(picture, "draw", lambda rows, path: None)


def a_round(cpu: float, wall: float = 1.5) -> Row:
    return Row("a round", "", key="round.1", value=wall, cpu_value=cpu)


def test_a_target_is_met_or_not_met(tmp_path):
    report.record([a_round(2.0), Row("up", "", key="up.2", value=2.6)], tmp_path)
    page = (tmp_path / "bench.md").read_text()
    assert "| a round, 1 partner, times the floor | 1.8 | 1.5 | met |" in page
    assert "| hdpvfl up on the default data, s | 2.5 | 2.6 | **not met**, 1.04 times" in page
    assert "| hdpvfl up with 16 partners, s | 7 |  | not measured |" in page
    assert "not measured: `python scripts/bench.py --only work` |" in page
    assert (tmp_path / "bench.png").stat().st_size > 1000
    assert json.loads((tmp_path / "bench.json").read_text())["rows"][0]["cpu_value"] == 2.0


@pytest.mark.usefixtures("no_picture")
@pytest.mark.parametrize(("cpu", "found"), [(2.0, 0), (2.9, 0), (3.1, 1)])
def test_a_ratio_that_grew_by_half_is_a_regression(tmp_path, cpu, found):
    report.record([a_round(2.0)], tmp_path)
    assert len(report.grown([a_round(cpu)], tmp_path)) == found


@pytest.mark.usefixtures("no_picture")
def test_a_record_without_these_rows_is_no_success(tmp_path):
    report.record([Row("other", "", key="up.2", value=1.0)], tmp_path)
    assert len(report.grown([a_round(1.0)], tmp_path)) == 1


@pytest.mark.usefixtures("no_picture")
def test_a_record_names_the_parts_that_have_not_run(tmp_path):
    report.record([a_round(2.0)], tmp_path, unfinished=["scores", "many"])
    assert "**Not finished**: scores, many" in (tmp_path / "bench.md").read_text()


@pytest.mark.usefixtures("no_picture")
def test_the_page_names_the_commit_that_was_measured(tmp_path):
    report.record([a_round(2.0)], tmp_path, commit="0a1b2c3")
    assert "from commit 0a1b2c3:" in (tmp_path / "bench.md").read_text()


@pytest.mark.parametrize(("load", "is_said"), [(1.0, False), (40.0, True)])
def test_the_page_says_that_the_machine_was_busy(load, is_said):
    found = {"date": "", "commit": "", "machine": "", "load": load, "unfinished": [], "rows": []}
    assert ("The machine was busy" in report.page(found)) is is_said


def test_every_target_can_be_missed_and_met():
    for key, target in targets.TARGETS.items():
        assert target.verdict(target.limit) == "met", key
        assert target.verdict(1.01 * target.limit).startswith("**not met**"), key


def test_every_panel_is_drawn(tmp_path):
    keys = [f"{prefix}{size}" for _, prefix, _ in picture.PANELS for size in (1, 8)]
    rows = [Row("", "", key=key, value=2.0, cpu_value=1.0) for key in keys]
    picture.draw(rows, tmp_path / "one.png")
    assert (tmp_path / "one.png").stat().st_size > 10_000


def test_the_floor_runs_with_real_processes():
    wall_s, cpu_s = floor.floor(2, 3)
    assert wall_s > 0.0
    assert cpu_s > 0.0
