"""The control socket: its owner alone reaches it, and long answers arrive whole."""

from __future__ import annotations

import asyncio
import stat

import pytest

from hdpvfl_mq.errors import NetworkError, OperatorError
from hdpvfl_mq.runtime.control import LINE_MAX, NAME, Caller, Control, ask


async def test_a_status_of_thousands_of_runs_arrives(tmp_path):
    """Bug: a few thousand runs fill a mebibyte; 'hdpvfl status' then said nobody answers."""
    runs = {f"run-{number:05}": "x" * 500 for number in range(4000)}

    async def handle(asked):
        return {"runs": runs}

    control = Control(tmp_path / "state", handle)
    await control.open()
    try:
        answer = await asyncio.to_thread(ask, tmp_path / "state", {}, what="test")
    finally:
        control.close()
    assert answer["runs"] == runs
    assert len(str(runs)) > LINE_MAX


async def test_only_its_owner_may_open_it_whatever_the_folder_allows(tmp_path):
    async def handle(asked):
        return {}

    folder = tmp_path / "state"
    folder.mkdir(mode=0o755)
    control = Control(folder, handle)
    await control.open()
    assert stat.S_IMODE((folder / NAME).stat().st_mode) == 0o600
    control.close()
    with pytest.raises(NetworkError):
        await asyncio.to_thread(ask, folder, {}, what="test")


async def test_one_connection_carries_many_questions_and_errors_between_them(tmp_path):
    async def handle(asked):
        if asked["number"] == 2:
            raise OperatorError("not this one")
        return {"number": asked["number"]}

    def asked():
        with Caller(tmp_path / "state", what="test") as caller:
            first = caller.ask({"number": 1})
            with pytest.raises(OperatorError, match="not this one"):
                caller.ask({"number": 2})
            return first, caller.ask({"number": 3})

    control = Control(tmp_path / "state", handle)
    await control.open()
    try:
        assert await asyncio.to_thread(asked) == ({"number": 1}, {"number": 3})
    finally:
        control.close()


async def test_who_got_no_whole_answer_gets_no_later_one(tmp_path, monkeypatch):
    """Bug: the rest of an answer that was too long was taken for the next question's."""

    async def handle(asked):
        return {"number": asked["number"]}

    def asked():
        with Caller(tmp_path / "state", what="test") as caller:
            with monkeypatch.context() as short:
                short.setattr("hdpvfl_mq.runtime.control.ANSWER_MAX", 5)
                with pytest.raises(NetworkError):
                    caller.ask({"number": 1})
            for number in (2, 3):
                with pytest.raises(NetworkError):
                    caller.ask({"number": number})

    control = Control(tmp_path / "state", handle)
    await control.open()
    try:
        await asyncio.to_thread(asked)
    finally:
        control.close()
