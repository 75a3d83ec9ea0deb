"""`make setup` installs the lock by uv, tells it what pip is told, and by pip where that fails."""

from __future__ import annotations

import re
import subprocess
from types import SimpleNamespace

import pytest

from scripts import install_lock
from scripts.install_lock import LOCK, SETTINGS, lines_of, settings_of_pip, told_to_uv

LISTED = """:env:.find-links='/wheels /more'
global.find-links='/other'
global.trusted-host='one.example\\ntwo.example'
install.timeout='9'
download.dest='/tmp'
"""


def test_settings_of_install_count_and_the_environment_has_the_last_word():
    assert settings_of_pip(LISTED) == {
        "find_links": "/wheels /more",
        "trusted_host": "one.example\ntwo.example",
        "timeout": "9",
    }


def test_uv_is_told_what_pip_is_told():
    variables, unknown = told_to_uv(settings_of_pip(LISTED))
    assert unknown == []
    assert variables == {
        "UV_FIND_LINKS": "/wheels,/more",
        "UV_INSECURE_HOST": "one.example two.example",
        "UV_INDEX_STRATEGY": "unsafe-best-match",
        "UV_HTTP_TIMEOUT": "9",
    }
    assert told_to_uv({"extra_index_url": "one\ntwo"})[0]["UV_INDEX"] == "one two"


def test_a_setting_that_uv_cannot_be_told_is_named_and_a_harmless_one_is_not():
    told = {"only_binary": ":all:", "progress_bar": "off", **dict.fromkeys(SETTINGS, "x")}
    assert told_to_uv(told)[1] == ["only_binary"]


def test_the_lock_has_uv_and_every_file_of_it_a_hash():
    found = lines_of("uv", LOCK.read_text())
    first, *hashes = found.splitlines()
    assert re.fullmatch(r"uv==[\d.]+ \\", first)
    assert hashes
    assert all(line.startswith("    --hash=sha256:") for line in hashes)
    assert lines_of("uv", "uvicorn==1 \\\n    --hash=sha256:0\n") == ""


class Programs:
    """Notes what is started; those whose words have `broken` in them fail."""

    def __init__(self, broken: str, listed: str = "") -> None:
        self.broken, self.listed, self.started = broken, listed, []

    def __call__(self, words, **_):
        line = " ".join(words)
        if "config list" not in line:
            self.started.append(line)
        return SimpleNamespace(returncode=int(self.broken in line), stdout=self.listed)


@pytest.mark.parametrize(
    ("broken", "listed", "said"),
    [
        ("nothing", "", ""),
        ("uv.lock", "", "uv cannot be had; pip installs instead"),
        ("/uv pip --quiet --no-progress install --require-hashes", "", "uv has failed; pip"),
        ("nothing", ":env:.only-binary=':all:'\n", "pip is set to only-binary, which uv cannot"),
    ],
)
def test_pip_installs_where_uv_does_not(monkeypatch, capsys, broken, listed, said):
    programs = Programs(broken, listed)
    monkeypatch.setattr(subprocess, "run", programs)
    assert install_lock.main() == 0
    assert capsys.readouterr().out.startswith(said)
    lock, itself = programs.started[-2:]
    assert "--require-hashes" in lock
    assert "--no-deps --no-build-isolation -e" in itself
    assert ("/uv pip" in lock) is ("/uv pip" in itself) is (said == "")


def test_it_fails_where_pip_does(monkeypatch):
    monkeypatch.setattr(subprocess, "run", Programs("--require-hashes"))
    assert install_lock.main() != 0
