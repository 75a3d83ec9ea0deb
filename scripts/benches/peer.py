"""Environments of the peers, each its own, and their programs: `python -m scripts.benches.peer`.

It owns build/peers/NAME, made from peers/NAME.txt, and how a program is run with its interpreter.
A peer that is not installed, or fails, is a sentence that says why: other parts go on.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
PROGRAMS = Path(__file__).parent / "peers"
ENVIRONMENTS = ROOT / "build" / "peers"
INSTALL_S = 900.0
# What the name of a peer does not say: why there is no requirements file for it.
ABSENT = {"stalactite": "no package of that name on PyPI"}
Found = dict[str, Any]


def python_of(name: str) -> Path | str:
    """The interpreter of a peer's environment, or why there is none."""
    if name in ABSENT:
        return f"not measured: {ABSENT[name]}"
    folder = ENVIRONMENTS / name
    if (folder / "ready").exists():
        return folder / "bin" / "python"
    reason = folder / "reason"
    return f"not installed: {reason.read_text()}" if reason.exists() else "not installed"


def run_peer(name: str, program: str, *arguments: object, limit_s: float) -> Found | str:
    """The object that a peer's program prints, or why it printed none."""
    python = python_of(name)
    if isinstance(python, str):
        return python
    command = [str(python), str(PROGRAMS / f"{program}.py"), *map(str, arguments)]
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile("w+") as errors:
        with subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            cwd=folder,
            start_new_session=True,  # its children end with it
            env={**os.environ, "HOME": folder, "PYTHONPATH": ""},
        ) as child:
            try:
                output, _ = child.communicate(timeout=limit_s)
            except subprocess.TimeoutExpired:
                return f"took more than {limit_s:.0f} s"
            finally:
                _end_group(child.pid)
        printed = [line for line in output.splitlines() if line.startswith("{")]
        if child.returncode or not printed:
            errors.seek(0)
            said = errors.read().strip().splitlines() or ["it said nothing"]
            return f"failed: {said[-1][-160:]}"
    found: Found = json.loads(printed[-1])
    return found


def _end_group(pid: int) -> None:
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def install(names: Sequence[str]) -> None:
    """Make the environments that are missing; a failure leaves its reason and the others go on."""
    for name in names:
        folder, wanted = ENVIRONMENTS / name, PROGRAMS / f"{name}.txt"
        if (folder / "ready").exists():
            print(f"{name}: ready")
            continue
        pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "-r", str(wanted)]
        reason = first_failure(([sys.executable, "-m", "venv", str(folder)], pip))
        (folder / ("reason" if reason else "ready")).write_text(reason)
        print(f"{name}: {reason or 'ready'}", flush=True)


def first_failure(commands: Sequence[Sequence[str]]) -> str:
    """What the first command that fails said last; empty if all succeed."""
    for command in commands:
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, check=False, timeout=INSTALL_S
            )
        except subprocess.TimeoutExpired:
            return f"installing took more than {INSTALL_S / 60:.0f} minutes"
        if done.returncode:
            return (done.stderr.strip().splitlines() or ["it does not install"])[-1][:160]
    return ""


if __name__ == "__main__":
    install(sys.argv[1:] or sorted(path.stem for path in PROGRAMS.glob("*.txt")))
