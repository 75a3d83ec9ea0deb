"""The partition into batches, the step size and the stopping rule."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hdpvfl_mq.errors import SettingsError
from hdpvfl_mq.glm.schedule import Schedule, StepSize, stops

schedules = st.builds(
    Schedule, rows=st.integers(1, 2000), batch_rows=st.integers(1, 3000), epochs=st.integers(1, 5)
)


@given(schedules)
def test_every_row_is_in_exactly_one_batch_of_an_epoch(schedule: Schedule) -> None:
    used = np.zeros(schedule.rows, dtype=int)
    for round_ in range(schedule.batches):
        used[schedule.batch(round_)] += 1
    assert (used == 1).all()


@given(schedules)
def test_batch_sizes_differ_by_at_most_one_and_none_is_too_large(schedule: Schedule) -> None:
    sizes = schedule.batch_sizes
    assert sum(sizes) == schedule.rows
    assert max(sizes) - min(sizes) <= 1
    assert min(sizes) >= 1
    assert max(sizes) <= schedule.batch_rows
    assert len(sizes) == -(-schedule.rows // min(schedule.batch_rows, schedule.rows))


@given(schedules)
def test_every_epoch_is_the_same(schedule: Schedule) -> None:
    assert schedule.rounds == schedule.epochs * schedule.batches
    for round_ in range(0, schedule.rounds, max(1, schedule.rounds // 50)):
        assert schedule.batch(round_) == schedule.batch(round_ % schedule.batches)
        assert schedule.epoch(round_) == round_ // schedule.batches < schedule.epochs


def test_the_last_batch_is_never_dropped_nor_short() -> None:
    assert Schedule(rows=10, batch_rows=4, epochs=1).batch_sizes == (3, 3, 4)
    assert Schedule(rows=3, batch_rows=100, epochs=1).batch_sizes == (3,)


def test_rounds_outside_the_schedule_are_refused() -> None:
    schedule = Schedule(rows=10, batch_rows=5, epochs=2)
    for round_ in (-1, 4):
        with pytest.raises(SettingsError, match="4 rounds"):
            schedule.batch(round_)
        with pytest.raises(SettingsError):
            schedule.epoch(round_)


@pytest.mark.parametrize("bad", [(0, 1, 1), (1, 0, 1), (1, 1, 0), (-5, 1, 1)])
def test_empty_schedules_are_refused(bad: tuple[int, int, int]) -> None:
    with pytest.raises(SettingsError):
        Schedule(*bad)


def test_step_size_falls_by_the_epoch() -> None:
    assert [StepSize(0.5).at(e) for e in range(3)] == [0.5, 0.5, 0.5]
    assert [StepSize(0.5, decay=1.0).at(e) for e in range(3)] == [0.5, 0.25, 0.5 / 3]
    for bad in ((0.0, 0.0), (-1.0, 0.0), (1.0, -0.1), (float("nan"), 0.0)):
        with pytest.raises(SettingsError):
            StepSize(*bad)


def test_stops_only_after_patience_without_a_fall() -> None:
    def rule(energies: list[float]) -> bool:
        return stops(energies, patience=2, tolerance=0.01)

    assert not rule([])
    assert not rule([1.0, 1.0])
    assert rule([1.0, 1.0, 0.995])
    assert not rule([1.0, 1.0, 0.98])
    assert not rule([1.0, 0.5, 0.6])
    assert rule([1.0, 0.5, 0.6, 0.5])
