"""Full disks, read-only folders and what others may read: one sentence and a documented exit."""

from __future__ import annotations

import errno
import resource
import stat
import sys
from functools import partial
from pathlib import Path

import pytest

from hdpvfl_mq.errors import OperatorError
from hdpvfl_mq.journal.store import Journal
from hdpvfl_mq.runtime import process
from schemas.config import BrokerSettings
from schemas.messages import MESSAGE
from schemas.text import in_words, printable
from tests.integration.processes import processes


def test_a_journal_and_its_log_are_for_their_owner_only(tmp_path):
    path = tmp_path / "run" / "journal.db"
    journal = Journal(path, run="test-run", party="shop")
    journal.commit([(0, b"x", b"y")])
    for each in path.parent.iterdir():
        assert stat.S_IMODE(each.stat().st_mode) == 0o600, each
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    journal.close()


def test_an_older_journal_is_closed_to_others_when_it_is_opened(tmp_path):
    path = tmp_path / "journal.db"
    Journal(path, run="test-run", party="shop").close()
    path.chmod(0o644)
    Journal(path, run="test-run", party="shop").close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_journal_where_no_folder_can_be_is_one_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OperatorError, match="check the folder and disk"):
        Journal(tmp_path / "file" / "journal.db", run="test-run", party="shop")


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EMFILE])
def test_whatever_the_system_refuses_ends_with_exit_2_and_one_line(
    tmp_path, monkeypatch, capsys, code
):
    async def run(settings) -> str:
        raise OSError(code, "no", str(tmp_path / "status.json"))

    def failed(settings, reason: str) -> None:
        raise OSError(code, "no")  # the status cannot be written either

    monkeypatch.setattr(process, "harden", lambda: None)
    monkeypatch.setattr(process, "load_settings", lambda schema, path: object())
    assert process.run_process(BrokerSettings, Path("settings.toml"), run, failed) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert "status.json failed (no); free disk space or repair the folder" in said


@pytest.mark.parametrize("name", ["coordinator", "active"])
def test_a_disk_that_is_full_ends_a_process_with_a_sentence(tmp_path, name):
    """No file may grow above 20 KiB, as on a disk with that little left."""
    with processes(tmp_path) as started:
        limits = (20 * 1024, 20 * 1024)
        started.before[name] = partial(resource.setrlimit, resource.RLIMIT_FSIZE, limits)
        started.start(name)
        assert started.children[name].wait(120.0) == 2
        said = started.said(name)
    assert "Traceback" not in said
    remedies = (
        "free disk space or repair the disk",
        "check the folder",
        "ledger cannot be written",
    )
    assert any(words in said for words in remedies), said


@pytest.mark.skipif(sys.platform != "linux", reason="prctl is Linux's")
def test_a_process_leaves_no_core_dump(tmp_path):
    with processes(tmp_path) as started:
        started.start("active")
        child = started.children["active"]
        limits = Path(f"/proc/{child.pid}/limits")

        def cores() -> str:
            return next(x for x in limits.read_text().splitlines() if x.startswith("Max core"))

        from tests.integration.processes import wait_for  # noqa: PLC0415 - used here only

        wait_for(lambda: cores().split()[4:6] == ["0", "0"], "no core dumps")
    assert resource.getrlimit(resource.RLIMIT_CORE) is not None


ESCAPES = ("\x1b[2J", "\x07", "\x9b31m", "a\rb", "\u202eexe.", "line\nline", "\u2028")


@pytest.mark.parametrize("text", ESCAPES)
def test_words_that_a_terminal_obeys_are_refused_from_peers_and_replaced_in_own_text(text):
    with pytest.raises(ValueError, match="terminal control characters"):
        MESSAGE.validate_python({"kind": "run_refuse", "rule": text})
    assert printable(text) != text
    assert printable(printable(text)) == printable(text)
    assert MESSAGE.validate_python({"kind": "run_refuse", "rule": in_words(text * 300)})
