"""Makes `tests.federation` and the sources importable however pytest is started."""

from __future__ import annotations

import os
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

# Bit-identical results are promised for one BLAS thread; processes the tests start inherit this.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
