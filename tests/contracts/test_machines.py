"""docs/machines.md and its pictures are what the script would write from today's tables."""

from __future__ import annotations

from dataclasses import replace
from xml.etree import ElementTree

import pytest

from hdpvfl_mq.machine import Move, stay
from scripts.draw_machines import (
    BEGIN,
    DRAWN,
    END,
    PAGE,
    PICTURES,
    changes,
    files,
    mermaid,
    table,
)
from scripts.machine_picture import picture

REMEDY = "run: python -m scripts.draw_machines"


@pytest.mark.parametrize("number", range(1 + len(DRAWN)))
def test_a_file_is_what_the_script_would_write(number):
    path, text = list(files(PAGE.read_text()))[number]
    assert path.exists(), REMEDY
    assert path.read_text() == text, REMEDY


def test_no_picture_is_left_over():
    assert {path.stem for path in PICTURES.iterdir()} == {machine.picture for machine in DRAWN}


def test_words_outside_the_marks_are_kept():
    text = dict(files(f"before {BEGIN} old {END} after"))[PAGE]
    assert text.startswith(f"before {BEGIN}")
    assert text.endswith(f"{END} after")
    assert " old " not in text


@pytest.mark.parametrize("machine", DRAWN, ids=lambda machine: machine.name)
def test_another_move_is_another_drawing(machine):
    other = {**machine.moves, (machine.ends[-1], "pause"): Move(stay, (machine.starts[0],))}
    changed = replace(machine, moves=other)
    assert mermaid(changed) != mermaid(machine)
    assert table(changed) != table(machine)
    assert changes(changed) != changes(machine)


@pytest.mark.parametrize("machine", DRAWN, ids=lambda machine: machine.name)
def test_a_picture_shows_every_phase_and_every_change(machine):
    names = [phase.__name__ for phase in machine.phases]
    tree = ElementTree.fromstring(picture(machine.name, names, changes(machine)))
    shown = ["".join(text.itertext()) for text in tree.iter("{http://www.w3.org/2000/svg}text")]
    assert set(names) <= set(shown)
    assert len(shown) == 1 + len(names) + len(changes(machine))
    arrows = [path for path in tree.iter() if path.get("marker-end")]
    assert len(arrows) == len(changes(machine))


@pytest.mark.parametrize("machine", DRAWN, ids=lambda machine: machine.name)
def test_the_ends_are_the_phases_that_nothing_leaves(machine):
    left = {before for before, _ in changes(machine)}
    ends = {phase.__name__ for phase in machine.phases} - left
    assert ends == {phase.__name__ for phase in machine.ends}
