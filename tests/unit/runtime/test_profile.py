"""The numeric profile is that of the arithmetic, not of what a process happened to load."""

from __future__ import annotations

import subprocess
import sys

_CODE = """
from hdpvfl_mq.runtime.profile import numeric_profile
before = numeric_profile()
import scipy.linalg
assert numeric_profile() == before, (before, numeric_profile())
"""


def test_a_library_that_brings_its_own_blas_does_not_change_it():
    done = subprocess.run([sys.executable, "-c", _CODE], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
