"""With rows on disk, files are made between steps and never inside one."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hdpvfl_mq.engine.disk_space import DiskSpace
from hdpvfl_mq.engine.port import LocalEngine
from hdpvfl_mq.engine.processes import ProcessEngine
from hdpvfl_mq.errors import OperatorError
from hdpvfl_mq.node.node import NO_LEDGER, Node
from parties.party import Party
from parties.process.mapped_arrays import MappedArrays
from parties.process.steps_on_disk import StepsOnDisk, role_of
from schemas.methods import PrivateModel
from schemas.records import Started
from tests.federation import Federation, manifest, tables

ON_DISK = ("open", "os.mkdir", "os.truncate", "tempfile.mkstemp")


class Watch:
    """Notes every file that is opened or made while a pure step is under way."""

    def __init__(self) -> None:
        self.is_stepping, self.seen = False, list[str]()
        self.steps = 0
        sys.addaudithook(self._heard)  # stays for the life of the process

    def _heard(self, event: str, given: tuple[Any, ...]) -> None:
        if self.is_stepping and event in ON_DISK:
            self.seen.append(f"{event}{given}")

    def around(self, step: Any) -> Any:
        def watched(role: Party, state: Any, given: Any) -> Any:
            self.is_stepping = True
            self.steps += 1
            try:
                return step(role, state, given)
            finally:
                self.is_stepping = False

        return watched


WATCH = Watch()


def on_disk(made: Federation, folder: Path, *, roles: Any = role_of, workers: bool = False) -> None:
    """The federation's parties keep their arrays on disk from now on."""
    start = made.node

    def node(party: str) -> Node:
        started = start(party)
        if isinstance(started.role, Party):
            space = DiskSpace(folder / party)
            own = replace(started.role.own, allocate=MappedArrays(space))
            engine = ProcessEngine(2, space) if workers else LocalEngine(own.allocate)
            started.role = roles(replace(own, engine=engine))
        return started

    made.node = node  # type: ignore[method-assign]  # this one federation only


METHODS = {"descent": {"epochs": 1}, "private_model": {"method": PrivateModel(columns_max=8)}}


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Watch:
    WATCH.seen.clear()
    monkeypatch.setattr(Party, "step", WATCH.around(Party.step))
    return WATCH


@pytest.mark.parametrize("workers", [False, True])
@pytest.mark.parametrize("method", METHODS)
def test_a_step_makes_no_file_and_the_run_is_the_same(
    tmp_path: Path, watched: Watch, monkeypatch: pytest.MonkeyPatch, method: str, workers: bool
) -> None:
    in_memory = Federation(manifest(**METHODS[method]), tables(60))
    in_memory.simulate()
    repeated, grow = list[int](), DiskSpace.grow

    def noted(space: DiskSpace, size: int) -> None:
        repeated.append(size)
        grow(space, size)

    monkeypatch.setattr(DiskSpace, "grow", noted)
    watched.seen.clear()
    mapped = Federation(manifest(**METHODS[method]), tables(60))
    on_disk(mapped, tmp_path, workers=workers)
    mapped.simulate()
    assert watched.seen == []
    assert repeated  # steps gave up, and were made again
    assert set(mapped.outcomes.values()) == {"completed"}
    for party, journal in in_memory.journals.items():
        assert list(mapped.journals[party].records()) == list(journal.records())


def test_the_watch_sees_the_files_of_a_step_that_makes_them(tmp_path: Path, watched: Watch) -> None:
    """The role without its shell, as it was: every array was a file made inside the step."""
    federation = Federation(manifest(epochs=1), tables(60))
    on_disk(federation, tmp_path, roles=Party)
    federation.simulate()
    assert watched.seen


def test_rows_in_memory_need_no_shell() -> None:
    own = Federation(manifest(), tables(60)).assets("bank")
    assert type(role_of(own)) is Party


def test_a_full_disk_ends_the_step_with_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    federation = Federation(manifest(epochs=1), tables(60))
    on_disk(federation, tmp_path)
    node = federation.node("bank")
    assert isinstance(node.role, StepsOnDisk)
    space = node.role._space

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    monkeypatch.setattr(Party, "step", lambda role, state, given: space.take(1))
    with pytest.raises(OperatorError, match="has no room for"):
        node.role.step(node.state, Started(epoch=1, standing=NO_LEDGER))
