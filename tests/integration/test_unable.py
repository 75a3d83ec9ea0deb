"""A party whose data cannot be read tells the others: nobody waits for it until the deadline."""

from __future__ import annotations

import signal
from pathlib import Path

from hdpvfl_mq.audit.audit import audit, exit_code
from hdpvfl_mq.audit.reader import read_evidence
from schemas.ids import COORDINATOR
from tests.integration.processes import WAIT_S, Processes, processes, wait_for


def wait_with_bad_data(started: Processes) -> Path:
    """Start a party with an unreadable file and no broker; returns the file once it waits."""
    rows = started.demo.rows("passive-2", "train")
    rows.write_text(rows.read_text().replace("\n", "\nnot a number", 1))
    started.start("passive-2")
    wait_for(started.log("passive-2").exists, "its log")
    wait_for(lambda: "waits up to" in started.said("passive-2"), "a word", 30.0)
    return rows


def test_unreadable_data_end_the_run_for_everybody_with_the_reason_and_who(tmp_path):
    """Bug: it exited with 2 and the others waited, by default for a day."""
    with processes(tmp_path, dataset="breast", passives=2) as started:
        rows = started.demo.rows("passive-2", "train")
        whole = rows.read_text()
        rows.write_text(whole.replace("\n", "\nnot a number", 1))
        started.start()
        codes = {name: child.wait(WAIT_S) for name, child in started.children.items()}
        assert codes["passive-2"] == 2
        for name in ("active", "passive-1", COORDINATOR):
            assert codes[name] == 3, started.said(name)
            assert "passive-2 withdrew: its own settings or data stop it" in started.said(name)
        assert "not a number" not in started.said("active") + started.said(COORDINATOR)
        rows.write_text(whole)
        started.start("passive-2")
        assert started.children["passive-2"].wait(WAIT_S) == 2
        assert "give the run another name" in started.said("passive-2")
        run = started.folder / "runs" / "test-run"
        assert exit_code(audit(read_evidence(run))) == 0


def test_a_broker_that_starts_later_hears_of_it_too(tmp_path):
    """Bug: a party gave up at the first refused connection, and the others waited for a day."""
    with processes(tmp_path, dataset="breast", passives=2) as started:
        wait_with_bad_data(started)
        started.start(*(name for name in started.names if name != "passive-2"))
        codes = {name: child.wait(WAIT_S) for name, child in started.children.items()}
        assert codes == {COORDINATOR: 3, "active": 3, "passive-1": 3, "passive-2": 2}


def test_ctrl_c_while_it_waits_for_a_broker_still_says_why_it_cannot_take_part(tmp_path):
    """Bug: the operator who did not want to wait got a traceback."""
    with processes(tmp_path, dataset="breast", passives=2) as started:
        rows = wait_with_bad_data(started)
        started.children["passive-2"].send_signal(signal.SIGINT)
        assert started.children["passive-2"].wait(WAIT_S) == 2
        assert "Traceback" not in started.said("passive-2")
        assert rows.name in started.said("passive-2")
