"""More than two classes as one binary run for each: one against the rest.

It owns the relabelling and the joint decision; it knows no loss. Each class is a run of its own and
is charged as one. The classes are declared, never read off the labels.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from hdpvfl_mq.errors import DataError, SettingsError
from hdpvfl_mq.glm.families.base import refuse_rows
from hdpvfl_mq.unreleased import FloatVector


def one_against_rest(y: FloatVector, classes: int, positive: int) -> FloatVector:
    """Labels of the run for class `positive`: 1 for it, 0 for the others.

    *Domain*: y holds class numbers 0 .. classes - 1.
    """
    if not (classes >= 2 and 0 <= positive < classes):
        raise SettingsError("there must be at least two classes, counted from 0")
    refuse_rows(~np.isin(y, np.arange(classes)), "label is not a declared class")
    return np.where(y == positive, 1.0, 0.0)


def decide(scores: Sequence[FloatVector]) -> NDArray[np.int64]:
    """The class of the largest score, the first of equals."""
    if len({len(part) for part in scores}) != 1:
        raise DataError("the runs of a multi-class model scored different numbers of rows")
    return np.asarray(np.argmax(np.stack(scores), axis=0))
