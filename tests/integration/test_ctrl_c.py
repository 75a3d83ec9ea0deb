"""Ending a demo: nothing is left behind, and the run goes on or a new one starts, as asked."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hdpvfl_mq.runtime.status import read
from tests.integration.processes import WAIT_S, command_lines, environment, hdpvfl, wait_for

LONG = ("--guarantee", "none", "--epochs", "3000", "--batch", "50", "--seed", "3")
END_S = 2.0
ROUNDS = 200  # enough to be interrupted in


def slack() -> float:
    """What a busy machine may add to a promise made for an idle one."""
    return max(0.0, os.getloadavg()[0] / (os.cpu_count() or 1) - 1.0) * 2.0


BREAST = ("--dataset", "breast", "--delta", "0.01")


class Up:
    """`hdpvfl up` in a process group of its own, as a shell would start it."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.log = (folder / "up.log").open("ab")
        self.child = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "hdpvfl_mq.app.cli",
                "up",
                *BREAST,
                "--out",
                str(folder),
                *options,
            ],
            stdin=subprocess.DEVNULL,
            stdout=self.log,
            stderr=self.log,
            env=environment(),
            start_new_session=True,
        )

    def alive(self) -> list[int]:
        """This demo's processes: their settings files lie in its folder."""
        return command_lines(str(self.folder))

    def train(self) -> None:
        """Wait until rounds are running in all five processes' midst."""

        def rounds() -> int:
            assert self.child.poll() is None, (self.folder / "up.log").read_text()
            files = self.folder.glob("runs/*/active/status.json")
            return max((read(path).get("round", 0) for path in files), default=0)

        wait_for(lambda: rounds() > 5, "training")
        assert len(self.alive()) >= 4

    def gone_after(self) -> float:
        began = time.monotonic()
        wait_for(lambda: not self.alive(), "the end of all processes", 30.0)
        return time.monotonic() - began

    def kill(self) -> None:
        for pid in self.alive():
            os.kill(pid, signal.SIGKILL)
        self.child.wait()
        self.log.close()


@pytest.fixture
def up(tmp_path):
    started: list[Up] = []

    def start(*options: str, folder: str = "demo") -> Up:
        started.append(Up(tmp_path / folder, *options))
        return started[-1]

    yield start
    for each in started:
        each.kill()


def runs_of(folder: Path) -> list[Path]:
    return sorted(p.parent.parent for p in folder.glob("runs/*-*/settings/manifest.toml"))


def test_ctrl_c_ends_everything_and_the_run_can_go_on(up):
    demo = up("--guarantee", "none", "--epochs", str(ROUNDS))
    demo.train()
    os.killpg(demo.child.pid, signal.SIGINT)  # what the terminal sends
    assert demo.gone_after() < END_S + slack()
    assert demo.child.wait() == 130
    (run,) = runs_of(demo.folder)
    said = (demo.folder / "up.log").read_text()
    assert f"hdpvfl up --resume {run.name} --out " in said
    assert f"RESUME={run.name}" in said
    assert "Traceback" not in said
    assert not (run / "summary.json").exists()
    steps = read(run / "active" / "status.json")["round"]

    # A plain start is a new run; one that is not resumed stays as it is.
    fresh = hdpvfl("up", *BREAST, "--out", demo.folder, "--epochs", "2", "--json", cwd=demo.folder)
    assert fresh.returncode == 0, fresh.stderr
    assert len(runs_of(demo.folder)) == 2
    assert read(run / "active" / "status.json")["round"] == steps

    resumed = hdpvfl("up", "--out", demo.folder, "--resume", run.name, "--json", cwd=demo.folder)
    assert resumed.returncode == 0, resumed.stderr
    summary = json.loads(resumed.stdout)
    assert summary["run"] == run.name
    assert summary["rounds"] == ROUNDS
    assert read(run / "active" / "status.json")["epoch"] == 2


@pytest.mark.parametrize("name", ["SIGTERM", pytest.param("SIGINT", marks=pytest.mark.slow)])
def test_a_signal_to_the_parent_alone_ends_its_children(up, name):
    demo = up(*LONG)
    demo.train()
    demo.child.send_signal(getattr(signal, name))
    assert demo.gone_after() < END_S + slack()
    assert demo.child.wait() == 130


def test_a_killed_parent_leaves_no_children(up):
    """Bug: children of a parent that could not end them lived until their patience ran out."""
    demo = up(*LONG)
    demo.train()
    demo.child.kill()
    demo.child.wait()
    assert demo.gone_after() < END_S + slack()


@pytest.mark.slow
def test_a_killed_child_ends_the_demo_with_a_reason(up):
    demo = up(*LONG)
    demo.train()
    (victim,) = [p for p in demo.alive() if _name(p) == "passive-1"]
    os.kill(victim, signal.SIGKILL)
    assert demo.child.wait(WAIT_S) == 2
    assert not demo.alive()
    assert "passive-1" in (demo.folder / "up.log").read_text()


def _name(pid: int) -> str:
    return (Path("/proc") / str(pid) / "comm").read_text().strip()
