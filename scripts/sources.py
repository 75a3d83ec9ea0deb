"""Which sources a result was made with: every recorded page names its commit.

It owns the question to git; it knows no result.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[1]


def commit() -> str:
    """The commit of the sources, with a plus if files differ from it; "unknown" without git."""
    try:
        changed = "+" if _git("diff", "HEAD", "--stat") else ""
        return _git("rev-parse", "--short", "HEAD") + changed
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def _git(*asked: str) -> str:
    found = subprocess.run(("git", *asked), cwd=ROOT, capture_output=True, text=True, check=True)
    return found.stdout.strip()
