"""A full disk or an unreadable file: stop with the reason, send nothing, go on later."""

from __future__ import annotations

from functools import partial

import pytest

from tests.integration.killing import Forks, assert_same, result_of, small_disk, undisturbed
from tests.integration.processes import processes

OPTIONS = {"epochs": 3}


def ended(forks: Forks, name: str) -> int:
    """The exit code of one process that must stop by itself."""
    return forks.running.pop(name).wait(60.0)


@pytest.fixture(scope="module")
def calm(tmp_path_factory):
    return undisturbed(tmp_path_factory.mktemp("calm"), **OPTIONS)


@pytest.mark.parametrize(
    ("name", "limit"),
    [("active", 40_000), ("active", 90_000), ("passive-1", 60_000), ("coordinator", 30_000)],
)
def test_a_full_disk_stops_a_process_and_it_goes_on_later(tmp_path, calm, name, limit):
    with processes(tmp_path, secrets=True, passives=1, batch=24, **OPTIONS) as real:
        forks = Forks(real)
        real.before[name] = partial(small_disk, limit)
        try:
            forks.start()
            assert ended(forks, name) == 2
            said = real.said(name)
            assert "disk" in said
            assert "Traceback" not in said
            del real.before[name]
            forks.start(name)
            forks.wait()
        finally:
            forks.stop()
        assert_same(result_of(real), calm)


def test_an_unreadable_journal_stops_a_process_before_it_speaks(tmp_path):
    with processes(tmp_path, secrets=True, passives=1, batch=24, **OPTIONS) as real:
        folder = real.demo.folder / "passive-1"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "journal.db").write_bytes(b"not a database at all" * 300)
        forks = Forks(real)
        try:
            forks.start("passive-1")
            assert ended(forks, "passive-1") == 5
        finally:
            forks.stop()
        assert "journal" in real.said("passive-1")
