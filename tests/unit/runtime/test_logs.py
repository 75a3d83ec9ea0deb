"""Log lines: a closed list of events and fields, as text or JSON."""

from __future__ import annotations

import json
import logging

import pytest

from hdpvfl_mq.runtime import logs


@pytest.fixture(autouse=True)
def quiet_again():
    yield
    logging.getLogger("hdpvfl").handlers[:] = []


def test_a_line_has_its_fields_as_text(capsys):
    logs.begin()
    logs.say("run_waits", run="spring-1", waiting_for=["shop", "telco"], reason="two words")
    line = capsys.readouterr().err
    assert 'run_waits run=spring-1 waiting_for=shop,telco reason="two words"' in line
    assert "info" in line


def test_a_line_is_one_json_object(capsys):
    logs.begin("json")
    logs.say("run_failed", run="spring-1", reason="disk is full")
    line = json.loads(capsys.readouterr().err)
    assert (line["level"], line["event"], line["run"]) == ("error", "run_failed", "spring-1")


def test_a_level_keeps_lower_lines_back(capsys):
    logs.begin(level="warning")
    logs.say("run_phase", run="spring-1", phase="training")
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(("event", "fields"), [("weights", {}), ("run_over", {"score": 0.3})])
def test_what_is_not_on_the_list_is_not_logged(event, fields):
    with pytest.raises(AssertionError, match="not on the list"):
        logs.say(event, **fields)
