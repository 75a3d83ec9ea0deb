"""A newcomer with two own files types what the README says, in its order, and gets what it says."""

from __future__ import annotations

import json
import math
import random
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

README = Path(__file__).parents[2] / "README.md"
HDPVFL = Path(sys.executable).with_name("hdpvfl")
PEOPLE = 1500


def commands() -> list[list[str]]:
    """The commands of the section on own files."""
    section = README.read_text().split("## Your own files", 1)[1].split("## ", 1)[0]
    block = section.split("```", 2)[1]
    return [shlex.split(line, comments=True) for line in block.splitlines() if line.strip()]


def write_files(folder: Path) -> None:
    """A bank and a shop with common customers; what the shop knows decides much of the label."""
    dice = random.Random(5)
    bank, shop = ["customer_id,income,default"], ["customer_id,basket,city"]
    for number in range(PEOPLE):
        income, basket = dice.gauss(40, 10), dice.gauss(0, 1)
        city = dice.choice(["Rome", "Oslo", "Bern"])
        theta = (income - 40) / 10 + 2.5 * basket
        label = "yes" if dice.random() < 1 / (1 + math.exp(-theta)) else "no"
        bank.append(f"C{number:05},{income:.2f},{label}")
        shop.append(f"C{number:05},{basket:.4f},{city}")
    (folder / "bank.csv").write_text("\n".join(bank) + "\n")
    (folder / "shop.csv").write_text("\n".join([shop[0], *reversed(shop[1:])]) + "\n")


@pytest.fixture(scope="module")
def typed(tmp_path_factory) -> tuple[Path, dict[str, subprocess.CompletedProcess[str]]]:
    folder = tmp_path_factory.mktemp("newcomer")
    write_files(folder)
    done = {}
    for words in commands():
        done[words[1]] = subprocess.run(
            [str(HDPVFL), *words[1:]],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
    return folder, done


def test_every_command_succeeds(typed):
    _, done = typed
    assert list(done) == ["up", "predict", "audit", "report", "evidence"]
    for name, each in done.items():
        assert each.returncode == 0, f"{name}: {each.stdout[-2000:]}\n{each.stderr[-2000:]}"
        assert "Traceback" not in each.stderr


def test_the_summary_compares_the_joint_model_with_the_bank_alone(typed):
    """Fresh noise decides how much the partner adds; its own validation may leave it out."""
    folder, done = typed
    summary = json.loads((folder / "runs" / "latest" / "summary.json").read_text())
    assert summary["test"]["auc"] > summary["test"]["active_alone"]["auc"] - 0.05
    assert "epsilon 1 means" in " ".join(done["up"].stdout.split())


def test_the_lines_fit_80_columns(typed):
    _, done = typed
    named = ("summary", "journals", "models", "ledgers")
    long = [line for line in done["up"].stdout.splitlines() if len(line) > 80]
    assert [line for line in long if not line.startswith(named)] == []


def test_the_bundle_is_where_the_command_says(typed):
    folder, done = typed
    name = done["evidence"].stdout.split(":", 1)[0]
    assert (folder / name).exists()


def test_a_reader_that_has_seen_enough_is_no_error(typed):
    folder, _ = typed
    piped = subprocess.run(
        f"set -o pipefail; {shlex.quote(str(HDPVFL))} audit | head -1",
        shell=True,
        executable="/bin/bash",
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert piped.returncode == 0
    assert piped.stderr == ""
