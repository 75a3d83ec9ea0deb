"""An independent verifier of a run's journals: standard library and PyNaCl, no code shared.

    python verify_journal runs/RUN [LEDGERS [MEMBERS.toml]]
    python verify_journal BUNDLE.zip [MEMBERS.toml]

The thirteen checks of `hdpvfl audit`, with plan and prices derived again (docs/audit.md). It prints
the formats of the journals, 1 or 2, and what each check found. Exit code 0: no alarm; 5: the
evidence contradicts itself (checks 1 to 5); 1: it is whole, the run is wrong. An auditor copies
this folder alone.
"""

from .formats import ENDINGS, ROUTES, sha
from .reports import main, report, report_bundle, verify
from .run import Run

__all__ = ["ENDINGS", "ROUTES", "Run", "main", "report", "report_bundle", "sha", "verify"]
