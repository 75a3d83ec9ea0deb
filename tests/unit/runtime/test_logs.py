"""Log lines: a closed list of events and fields, as text or JSON, kept with their run."""

from __future__ import annotations

import json

import pytest

from hdpvfl_mq.runtime import logs
from hdpvfl_mq.runtime.logs import Log


def test_a_line_has_its_fields_as_text(capsys):
    Log().say("run_waits", run="spring-1", waiting_for=["shop", "telco"], reason="two words")
    line = capsys.readouterr().err
    assert 'run_waits run=spring-1 waiting_for=shop,telco reason="two words"' in line
    assert "info" in line


def test_a_line_is_one_json_object(capsys):
    Log("json").say("run_failed", run="spring-1", reason="disk is full")
    line = json.loads(capsys.readouterr().err)
    assert (line["level"], line["event"], line["run"]) == ("error", "run_failed", "spring-1")


def test_a_level_keeps_lower_lines_back(capsys):
    Log(level="warning").say("run_phase", run="spring-1", phase="training")
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(("event", "fields"), [("weights", {}), ("run_over", {"score": 0.3})])
def test_what_is_not_on_the_list_is_not_logged(event, fields):
    with pytest.raises(AssertionError, match="not on the list"):
        Log().say(event, **fields)


def test_lines_about_a_run_are_kept_with_it_up_to_a_limit(tmp_path, monkeypatch):
    folder = tmp_path / "spring-1" / "shop"
    log = Log("json", "error", runs=tmp_path, owner="shop")
    log.say("run_phase", run="spring-1", phase="open")  # the run has no folder yet
    folder.mkdir(parents=True)
    log.say("run_phase", run="spring-1", phase="training")
    log.say("connected", address="tcp://x:1")
    kept = (folder / logs.RUN_LOG).read_text()
    assert [json.loads(line)["phase"] for line in kept.splitlines()] == ["training"]
    monkeypatch.setattr(logs, "RUN_LOG_MAX_BYTES", 10)
    log.say("run_phase", run="spring-1", phase="over")
    assert (folder / logs.RUN_LOG).read_text() == kept
