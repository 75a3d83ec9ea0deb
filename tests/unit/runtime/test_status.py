"""How often a status is written: a fifth of a second, or a fiftieth of the time it takes."""

from __future__ import annotations

from weakref import WeakSet

import pytest

from hdpvfl_mq.runtime.status import EVERY_S, OLDER_S, OLDEST_S, SHARE, Status, read


@pytest.fixture(autouse=True)
def _no_other_status(monkeypatch):
    monkeypatch.setattr("hdpvfl_mq.runtime.status._all", WeakSet())


@pytest.mark.parametrize(
    ("takes_s", "next_s"), [(0.0, EVERY_S), (0.02, SHARE * 0.02), (3.0, OLDEST_S)]
)
def test_a_status_that_takes_long_is_written_less_often(tmp_path, monkeypatch, takes_s, next_s):
    """Bug: with 64 parties on a busy machine a tenth of the time went into status files."""
    clock = [100.0]
    monkeypatch.setattr("hdpvfl_mq.runtime.status.time.monotonic", lambda: clock[0])
    written = Status(tmp_path / "status.json")
    assert written.due()
    clock[0] += takes_s  # collecting the fields
    written.write({"round": 1})
    done = clock[0]
    clock[0] = done + next_s - 0.01
    assert not written.due()
    clock[0] = done + next_s + 0.01
    assert written.due()
    assert read(tmp_path / "status.json") == {"round": 1}


@pytest.mark.parametrize(
    ("parties", "next_s"), [(1, EVERY_S), (10, 5.0 * EVERY_S), (64, 32.0 * EVERY_S)]
)
def test_the_statuses_of_one_process_share_its_time(tmp_path, monkeypatch, parties, next_s):
    """Bug: 64 parties in one process wrote 320 statuses a second, a quarter of a core."""
    _share_the_time(tmp_path, monkeypatch, parties, takes_s=0.002, next_s=next_s)


@pytest.mark.parametrize("parties", [1, 2, 64])
def test_many_statuses_are_older_on_a_machine_that_is_too_slow_for_them(
    tmp_path, monkeypatch, parties
):
    """Bug: 64 parties in a process on a busy machine used a tenth of its time for statuses."""
    oldest_s = OLDEST_S + OLDER_S * (parties - 1)
    _share_the_time(tmp_path, monkeypatch, parties, takes_s=3.0, next_s=oldest_s)


def _share_the_time(tmp_path, monkeypatch, parties, *, takes_s, next_s):
    clock = [100.0]
    monkeypatch.setattr("hdpvfl_mq.runtime.status.time.monotonic", lambda: clock[0])
    hosted = [Status(tmp_path / f"{number}.json") for number in range(parties)]
    assert hosted[0].due()
    clock[0] += takes_s
    hosted[0].write({})
    clock[0] += next_s - 0.01
    assert not hosted[0].due()
    clock[0] += 0.02
    assert hosted[0].due()
