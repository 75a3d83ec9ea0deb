"""More than two classes as one binary run for each: one against the rest.

It owns the joint decision; it knows no loss. Each class is a run of its own and is charged as one;
which class a run is about is said by `label_positive` in the active party's data settings.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from hdpvfl_mq.arrays.unreleased import FloatVector
from hdpvfl_mq.errors import DataError


def decide(scores: Sequence[FloatVector]) -> NDArray[np.int64]:
    """The class of the largest score, the first of equals."""
    if len({len(part) for part in scores}) != 1:
        raise DataError("the runs of a multi-class model scored different numbers of rows")
    return np.asarray(np.argmax(np.stack(scores), axis=0))
