"""Space on disk: stretches are used again, only when nothing lies in them, and never doubled."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hdpvfl_mq.engine.disk_space import DiskSpace, SpaceNeededError
from hdpvfl_mq.errors import OperatorError
from parties.process.mapped_arrays import MappedArrays

GRAIN = 4096


def held_bytes(space: DiskSpace) -> int:
    return space._total


def test_no_file_is_made_while_the_space_is_fixed(tmp_path: Path) -> None:
    space = DiskSpace(tmp_path / "rows")
    with space.fixed(), pytest.raises(SpaceNeededError) as short:
        space.take(10)
    assert short.value.size == GRAIN
    assert not (tmp_path / "rows").exists()
    space.grow(short.value.size)
    with space.fixed():
        assert space.take(10).size == GRAIN


def test_a_stretch_is_free_when_no_view_of_its_array_is_left(tmp_path: Path) -> None:
    """Numpy's views keep the mapping, not the array that they were cut from."""
    space = DiskSpace(tmp_path)
    allocate = MappedArrays(space)
    array = allocate((GRAIN,), np.uint8)
    view = array[10:20].reshape(2, 5).T
    array[:] = 7
    del array
    gc.collect()
    with space.fixed(), pytest.raises(SpaceNeededError):
        allocate((GRAIN,), np.uint8)
    assert (view == 7).all()
    del view
    gc.collect()
    with space.fixed():
        allocate((GRAIN,), np.uint8)[:] = 8
    assert held_bytes(space) == GRAIN


def test_growing_doubles_the_space_so_that_few_steps_are_repeated(tmp_path: Path) -> None:
    space = DiskSpace(tmp_path)
    repeats, held = 0, []
    while len(held) < 256:
        try:
            with space.fixed():
                held.append(space.take(GRAIN))
        except SpaceNeededError as short:
            repeats += 1
            space.grow(short.size)
    assert repeats <= 9
    assert held_bytes(space) <= 2 * 256 * GRAIN


def test_a_disk_without_room_for_twice_the_space_gives_what_is_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    space, allocated = DiskSpace(tmp_path), os.posix_fallocate
    space.grow(8 * GRAIN)

    def nearly_full(descriptor: int, start: int, size: int) -> None:
        if size > 2 * GRAIN:
            raise OSError(28, "No space left on device")
        allocated(descriptor, start, size)

    monkeypatch.setattr(os, "posix_fallocate", nearly_full)
    space.grow(2 * GRAIN)
    assert held_bytes(space) == 10 * GRAIN
    with pytest.raises(OperatorError, match="has no room for"):
        space.grow(3 * GRAIN)


def test_files_with_nothing_in_them_are_closed(tmp_path: Path) -> None:
    space = DiskSpace(tmp_path)
    allocate = MappedArrays(space)
    kept, dropped = allocate((GRAIN,), np.uint8), allocate((4 * GRAIN,), np.uint8)
    kept[:] = 1
    del dropped
    gc.collect()
    space.trim()
    assert held_bytes(space) == GRAIN
    assert (kept == 1).all()
    assert (allocate((4 * GRAIN,), np.uint8) == 0).all()  # a new file


@settings(max_examples=50, deadline=None)
@given(sizes=st.lists(st.tuples(st.integers(1, 5 * GRAIN), st.booleans()), max_size=40))
def test_arrays_never_overlap(sizes: list[tuple[int, bool]], tmp_path_factory) -> None:  # type: ignore[no-untyped-def]  # pytest's
    allocate = MappedArrays(DiskSpace(tmp_path_factory.mktemp("rows")))
    held: list[tuple[int, np.ndarray]] = []
    for number, (size, is_kept) in enumerate(sizes):
        array = allocate((size,), np.uint8)
        array[:] = number
        if is_kept:
            held.append((number, array))
        elif held:
            held.pop(len(held) // 2)
    for number, array in held:
        assert (array == number).all()
