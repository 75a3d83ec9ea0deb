"""Four good rows of an active party, and a change of some columns, for tests of preparation."""

from __future__ import annotations

from hdpvfl_mq.data.preprocess import PreparedData, prepare
from hdpvfl_mq.data.tables import Table
from schemas.data import DataSettings, NamedColumn

GOOD = {
    "id": ["a", "b", "c", "d"],
    "y": [0, 1, 1, 0],
    "age": [1.0, 2.0, 3.0, 6.0],
    "sex": ["f", "m", "m", "f"],
}
SEX = NamedColumn(name="sex", categories=("f", "m"))
ACTIVE = DataSettings(label_column="y", rules=(SEX,))


def prepared(settings: DataSettings, role: str = "active", **changed: object) -> PreparedData:
    return prepare(Table.of({**GOOD, **changed}), settings, role=role)
