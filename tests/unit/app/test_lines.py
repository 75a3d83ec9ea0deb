"""Lines on a terminal of 80 or 120 columns break between words; elsewhere they stay whole."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from rich.console import Console

from hdpvfl_mq.app.console import COSTS_OF_SCORES, NEXT, Watcher, in_one_sentence, scores
from hdpvfl_mq.app.lines import say, wrapped

TEXT = "  - that the noise was drawn from the committed seed and added before a release left: only"


@pytest.mark.parametrize("columns", [80, 120])
def test_a_long_line_breaks_between_words(columns):
    text = TEXT + " 'hdpvfl replay' inside the party shows that, with its data and its secret"
    lines = wrapped(text, columns)
    assert all(len(line) <= columns for line in lines)
    assert " ".join(line.strip() for line in lines) == text.strip()
    assert lines[0].startswith("  - ")
    assert lines[1].startswith("    ")


def test_a_path_stays_whole():
    path = "/" + "long-folder/" * 12 + "file"
    assert wrapped(f"scores   {path}", 80)[-1].strip() == path


def test_a_pipe_gets_the_line_as_it_is(capsys):
    say(TEXT * 3)
    assert capsys.readouterr().out == TEXT * 3 + "\n"


def test_a_training_of_one_round_ends_with_lines_of_at_most_80_columns():
    out = io.StringIO()
    watcher = Watcher(Console(file=out, width=80), "active")
    parties = ("active", "passive-1", "passive-2", "passive-3", "passive-4", "passive-5")
    fields = {"phase": "closed", "rounds": 1, "round": 1, "training_s": 0.5}
    statuses = {party: {**fields, "epsilon_spent": 0.96664} for party in parties}
    statuses["active"]["loss"] = 0.60487
    watcher.show(statuses)
    lines = out.getvalue().splitlines()
    assert "trained    1 round, own loss 0.6049" in lines
    spent = next(line for line in lines if line.startswith("spent"))
    assert spent.endswith("and 4 more")
    assert "rounds/s" not in out.getvalue()


def test_a_scoring_is_not_called_a_training():
    out = io.StringIO()
    watcher = Watcher(Console(file=out, width=80), "active", is_scoring=True)
    fields = {"phase": "closed", "rounds": 1, "round": 1, "align_kept": True, "rows_common": 3912}
    watcher.show({p: {**fields, "epsilon_spent": 0.0} for p in ("active", "passive-1")})
    assert "3,912 common rows, kept from an earlier run" in out.getvalue()
    assert "train" not in out.getvalue()
    assert "--resolve-again" not in out.getvalue()
    assert "spent" not in out.getvalue()


@pytest.mark.parametrize("charged_to", COSTS_OF_SCORES)
def test_who_pays_for_scores_is_said(charged_to):
    party = {"name": "shop", "noise_std": 3.5, "epsilon_spent": 0.0, "epsilon_lifetime": 1.0}
    result = {
        "parties": [party],
        "rows_scored": 3912,
        "predictions": "runs/x-scores-1/active/predictions.csv",
        "epsilon": 5.0,
        "delta": 1e-5,
        "charged_to": charged_to,
    }
    out = io.StringIO()
    scores(Console(file=out, width=80), result)
    said = " ".join(out.getvalue().split())
    assert ("the scored person epsilon 5 at delta 1e-05" in said) == (charged_to == "scored people")
    assert ("score is disclosed" in said) == (charged_to == "nobody")
    assert all(len(line.rstrip()) <= 80 for line in out.getvalue().splitlines())


def test_the_readme_shows_what_is_printed():
    """The sample of `make run-parties` has today's sentences; numbers differ in every run."""
    readme = (Path(__file__).parents[3] / "README.md").read_text()
    sample = " ".join(readme.split("`make run-parties` prints", 1)[1].split("```", 2)[1].split())
    assert in_one_sentence(1.0, 1e-5) in sample
    assert " ".join(NEXT.split()) in sample
    watcher = Watcher(Console(file=(out := io.StringIO()), width=80), "active")
    fields = {"phase": "closed", "rounds": 1, "round": 1, "rows_common": 16278, "loss": 0.60492}
    parties = ("active", "passive-1", "passive-2")
    watcher.show({p: {**fields, "epsilon_spent": 1.0} for p in parties})
    for line in out.getvalue().splitlines():
        assert " ".join(line.split()) in sample
