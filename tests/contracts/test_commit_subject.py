"""The subject of the newest commit has at most 72 characters, as .pre-commit-config.yaml says.

The hook runs only where somebody has installed it; this runs wherever the tests do.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SUBJECT_MAX = 72


def newest() -> tuple[str, int]:
    """Subject and number of parents of HEAD."""
    git = shutil.which("git")
    if git is None or not (ROOT / ".git").exists():
        pytest.skip("no git, or not a repository: an archive has no commits")
    shown = subprocess.run(
        [git, "log", "-1", "--format=%P%n%s"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if shown.returncode:
        pytest.skip("git shows no commit here: none yet, or a folder of another owner")
    parents, subject = shown.stdout.split("\n")[:2]
    return subject, len(parents.split())


def test_the_subject_of_the_newest_commit_is_short() -> None:
    subject, parents = newest()
    if parents > 1:
        pytest.skip("a merge: its subject names branches")
    assert len(subject) <= SUBJECT_MAX, f"{len(subject)} characters: {subject}"
