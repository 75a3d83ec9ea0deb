"""The list of planted faults (scripts/mutants.py) fits the code."""

from __future__ import annotations

from dataclasses import replace

from scripts.mutants import ROOT, drawn, mutants

LISTED = mutants()


def test_every_fault_can_still_be_planted():
    """A text that is not in its file exactly once would be a fault that nobody plants."""
    assert [problem for mutant in LISTED if (problem := mutant.problem(ROOT))] == []


def test_every_test_that_is_named_exists():
    for mutant in LISTED:
        for test in mutant.tests:
            file, _, name = test.partition("::")
            assert f"def {name}(" in (ROOT / file).read_text() if name else (ROOT / file).exists()


def test_there_are_at_least_60_and_every_one_is_another():
    assert len(LISTED) >= 60
    assert len({mutant.name for mutant in LISTED}) == len(LISTED)
    assert all(mutant.old != mutant.new and mutant.tests for mutant in LISTED)


def test_a_text_that_is_gone_is_told():
    gone = replace(LISTED[0], old="a text that nobody wrote")
    assert "0 times" in (gone.problem(ROOT) or "")
    assert "is gone" in (replace(gone, file="parties/nothing.py").problem(ROOT) or "")


def test_another_commit_draws_others_and_sixty_draws_find_most():
    draws = [drawn(LISTED, f"commit {number}") for number in range(60)]
    assert all(len(draw) == -(-len(LISTED) // 20) for draw in draws)
    assert len({mutant.name for draw in draws for mutant in draw}) > 0.8 * len(LISTED)
