"""Empty ids: refused by the reader, or kept for the id rules to drop."""

from __future__ import annotations

import pytest

from hdpvfl_mq.data.preprocess import prepare
from hdpvfl_mq.data.tables import Table
from hdpvfl_mq.errors import DataError
from hdpvfl_mq.psi import normalise
from schemas.config import IdRules
from schemas.data import DataSettings

KEEP = DataSettings(empty_ids="keep")
CASES = {
    "text": (["a", "", "c"], "text", [b"a", b"c"]),
    "integers with a gap": ([7, None, 9], "integer", [b"7", b"9"]),
    "text with a gap": (["a", None, "c"], "text", [b"a", b"c"]),
}


@pytest.mark.parametrize("name", CASES)
def test_kept_empty_ids_are_dropped_by_the_rules(name):
    values, kind, expected = CASES[name]
    data = prepare(Table.of({"id": values, "x": [1.0, 2.0, 4.0]}), KEEP, role="passive")
    found = normalise(data.ids, IdRules(kind=kind, empties="drop"))
    assert (list(found.ids), found.rows.tolist()) == (expected, [0, 2])
    with pytest.raises(DataError, match="rows 2"):
        normalise(data.ids, IdRules(kind=kind))


def test_by_default_the_reader_refuses_and_decimal_ids_are_refused_always():
    with pytest.raises(DataError, match="row 2"):
        prepare(Table.of({"id": ["a", ""], "x": [1.0, 2.0]}), DataSettings(), role="passive")
    for settings in (DataSettings(), KEEP):
        with pytest.raises(DataError, match="id"):
            prepare(Table.of({"id": [1.5, 2.5], "x": [1.0, 2.0]}), settings, role="passive")
