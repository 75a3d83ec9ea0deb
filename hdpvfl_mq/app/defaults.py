"""Default values of the options that several commands share, each in one place.

It owns numbers and names, and imports nothing: the parser of `hdpvfl` reads them at every start.
"""

from __future__ import annotations

from typing import Final

EPSILON: Final = 1.0
DELTA: Final = 1e-5  # the paper's is 0.01
GUARANTEE: Final = "sound"
LOSS: Final = "logistic"
DATASET: Final = "visits"
PASSIVES: Final = 2
SEED: Final = 0
RUN: Final = "latest"
LIFETIME_EPSILON: Final = 4.0
