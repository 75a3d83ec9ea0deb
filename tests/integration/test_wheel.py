"""What pip installs: the wheel holds all a user needs, and runs far from this folder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("hdpvfl_mq", "parties", "broker", "schemas")
ELSEWHERE = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "HDPVFL_DATA")}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    source.mkdir()
    for name in (*PACKAGES, "pyproject.toml", "README.md", "LICENSE"):
        (source / name).symlink_to(ROOT / name)  # the build leaves its files here, not there
    build = ["-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([sys.executable, *build, "-w", str(folder), str(source)], check=True)
    return next(folder.glob("*.whl"))


def test_every_file_of_the_packages_is_in_it(wheel):
    held = set(zipfile.ZipFile(wheel).namelist())
    needed = {
        path.relative_to(ROOT).as_posix()
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert needed <= held
    assert not any(name.startswith(("tests/", "scripts/")) for name in held)


def test_it_runs_without_this_folder(wheel, tmp_path):
    """Unpacked beside the installed libraries; nothing of the repository is on the path."""
    inside = tmp_path / "site"
    zipfile.ZipFile(wheel).extractall(inside)
    program = (
        "import sys; sys.path.insert(0, sys.argv.pop(1)); import hdpvfl_mq; "
        "assert hdpvfl_mq.__file__.startswith(sys.path[0]), hdpvfl_mq.__file__; "
        "from hdpvfl_mq.app.cli import run; run()"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", program, str(inside), "datasets", "--json"],
        cwd=tmp_path,
        env=ELSEWHERE,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "visits" in {row["name"] for row in json.loads(done.stdout)}


@pytest.mark.slow
def test_an_empty_environment_gets_the_whole_demo(wheel, tmp_path):
    """Needs a package index; `make test-slow`."""
    venv.create(tmp_path / "env", with_pip=True)
    programs = tmp_path / "env" / "bin"
    subprocess.run([programs / "pip", "install", "--quiet", str(wheel)], env=ELSEWHERE, check=True)
    for command in ("up", "predict", "audit", "report", "evidence"):
        subprocess.run(
            [programs / "hdpvfl", command], cwd=tmp_path, env=ELSEWHERE, timeout=600, check=True
        )
    summary = json.loads((tmp_path / "runs" / "latest" / "summary.json").read_text())
    assert summary["test"]["auc"] > summary["test"]["active_alone"]["auc"]
