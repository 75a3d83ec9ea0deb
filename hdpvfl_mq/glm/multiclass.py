"""More than two classes as one binary run for each class: one against the rest.

It owns the joint decision; it knows no loss. Each class has its own run and pays for it;
`label_positive` in the active party's data settings names the class of a run.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from hdpvfl_mq.arrays.unreleased import FloatVector
from hdpvfl_mq.errors import DataError


def decide(scores: Sequence[FloatVector]) -> NDArray[np.int64]:
    """The class with the largest score; among equal scores, the first class."""
    if len({len(part) for part in scores}) != 1:
        raise DataError("the runs of a multi-class model scored different numbers of rows")
    return np.asarray(np.argmax(np.stack(scores), axis=0))
