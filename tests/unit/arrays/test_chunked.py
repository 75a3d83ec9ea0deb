"""Chunks, gathering, marks and groups give what numpy gives at once."""

from __future__ import annotations

import numpy as np
import pytest

from hdpvfl_mq.arrays.chunked import CHUNK_ROWS, Growing, chunks, gather, group, marked, marks
from hdpvfl_mq.engine.disk_space import DiskSpace
from hdpvfl_mq.errors import OperatorError
from parties.process.mapped_arrays import MappedArrays

ROWS = 2 * CHUNK_ROWS + 777
DICE = np.random.default_rng(5)


@pytest.fixture(params=["memory", "disk"])
def allocate(request, tmp_path):
    return np.empty if request.param == "memory" else MappedArrays(DiskSpace(tmp_path))


def test_chunks_cover_all_rows_once():
    parts = list(chunks(ROWS))
    assert np.array_equal(
        np.concatenate([np.arange(ROWS)[part] for part in parts]), np.arange(ROWS)
    )
    assert list(chunks(0)) == []


def test_gathering_takes_values_in_the_order_asked_for(allocate):
    values, positions = DICE.normal(size=ROWS), DICE.permutation(ROWS)
    assert np.array_equal(gather(values, positions, allocate), values[positions])


def test_marks_are_found_in_ascending_order(allocate):
    mask = marks(ROWS, allocate)
    assert not mask.any()
    mask[DICE.integers(0, ROWS, 1000)] = True
    assert np.array_equal(marked(mask, allocate), np.flatnonzero(mask))


def test_a_growing_vector_holds_all_that_was_added(allocate):
    growing, parts = Growing(np.int64, allocate), [DICE.integers(0, 9, n) for n in (0, 5, 9000, 1)]
    for part in parts:
        growing.add(part)
    assert np.array_equal(growing.filled, np.concatenate(parts))
    assert repr(growing) == "<Growing of 9006 entries>"


@pytest.mark.parametrize("groups", [1, 7, 300, 70_000])
def test_groups_are_those_of_a_stable_sort(allocate, groups):
    numbers = DICE.integers(0, groups, ROWS)
    found = group(lambda part: numbers[part], ROWS, groups=groups, allocate=allocate)
    assert np.array_equal(found.positions, np.argsort(numbers, kind="stable"))
    assert len(found) == len(list(found)) == groups
    assert np.array_equal(found[groups - 1], np.flatnonzero(numbers == groups - 1))


def test_files_have_no_name_and_nothing_needs_none(tmp_path):
    allocate = MappedArrays(DiskSpace(tmp_path / "rows"))
    array = allocate((3, 4), np.float32)
    assert isinstance(array, np.memmap)
    assert (array == 0.0).all()
    assert list((tmp_path / "rows").iterdir()) == []
    assert (tmp_path / "rows").stat().st_mode & 0o777 == 0o700
    assert allocate((0, 4), np.float32).shape == (0, 4)


def test_a_full_disk_is_an_error_and_not_a_crash_later_on(tmp_path):
    with pytest.raises(OperatorError, match=r"no room for 1125899\.9 GB"):
        MappedArrays(DiskSpace(tmp_path))((2**50,), np.uint8)
