"""Every bad input is refused by column and row number, and never by quoting a cell."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from pydantic import ValidationError

from hdpvfl_mq.data import constants
from hdpvfl_mq.data.preprocess import prepare
from hdpvfl_mq.data.readers import TableFile
from hdpvfl_mq.data.tables import Table
from hdpvfl_mq.errors import DataError
from schemas.data import ColumnRule, DataSettings, NamedColumn
from tests.unit.data.four_rows import ACTIVE, SEX, prepared

BAD = {
    "nan feature": ({"age": [1.0, np.nan, 3.0, 4.0]}, "column 'age', row 2: the cell is empty"),
    "nan text": ({"age": ["1", "2", "nan", "4"]}, "column 'age', row 3: the cell is empty"),
    "inf feature": ({"age": [1.0, 2.0, 3.0, -np.inf]}, "column 'age', row 4: .*not finite"),
    "inf text": ({"age": ["1", "inf", "3", "4"]}, "column 'age', row 2: .*not finite"),
    "text feature": ({"age": ["1", "s3cret", "3", "4"]}, "column 'age', row 2: .*not a number"),
    "code feature": ({"age": ["1", "2", "1_000", "4"]}, "column 'age', row 3: .*not a number"),
    "huge integer": ({"age": [1, 2, 3, 10**400]}, "column 'age', row 4: .*different kind"),
    "nan label": ({"y": [0.0, 1.0, np.nan, 0.0]}, "column 'y', row 3: the cell is empty"),
    "inf label": ({"y": [0.0, np.inf, 1.0, 0.0]}, "column 'y', row 2: the cell is not finite"),
    "text label": ({"y": ["0", "1", "s3cret", "0"]}, "column 'y', row 3: .*not a number"),
    "unknown category": (
        {"sex": ["f", "s3cret", "m", "f"]},
        "column 'sex', row 2: .*declared list",
    ),
    "empty category": ({"sex": ["f", "", "m", "f"]}, "column 'sex', row 2: the cell is empty"),
    "mixed feature": ({"age": [1, b"s3cret", 3, 4]}, "column 'age', row 2: .*different kind"),
    "bytes feature": ({"age": [b"s3cret"] * 4}, "column 'age' holds binary, .*neither numbers"),
    "odd category": ({"sex": ["f", 2, "m", "f"]}, "column 'sex', row 2: .*different kind"),
    "decimal comma": ({"age": ["1,5", "2,5", "3", "4"]}, "row 1, 2: .*set data.decimal"),
    "all empty": ({"age": [None] * 4}, "column 'age', row 1, 2, 3, 4: the cell is empty"),
    "empty id": ({"id": ["a", "", "c", "d"]}, "column 'id', row 2: the id is empty"),
    "missing id": ({"id": [1, None, 3, 4]}, "column 'id', row 2: the id is empty"),
    "none among ids": ({"id": ["a", "b", None, "d"]}, "column 'id', row 3: the id is empty"),
    "decimal id": ({"id": [1.5, 2.5, 3.5, 4.5]}, "'id' holds decimal numbers"),
    "mixed ids": ({"id": ["a", 2, "c", 4]}, "column 'id', row 2, 4: .*different kind"),
    "bool ids": ({"id": [True, False, True, False]}, "id column 'id' holds bool"),
    "bytes ids": ({"id": [b"s3cret", b"b", b"c", b"d"]}, "id column 'id' holds binary; give"),
    "huge ids": ({"id": np.array([2**64 - 1, 1, 2, 3], np.uint64)}, "beyond 64 bits"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_refused_by_column_and_row_number(case: str) -> None:
    changed, message = BAD[case]
    with pytest.raises(DataError, match=message) as caught:
        prepared(ACTIVE, **changed)
    for value in ("s3cret", "3.25", "2.5", "inf"):
        assert value not in str(caught.value).replace("infinite", "")


def test_only_the_first_rows_are_listed() -> None:
    table = Table.of({"id": list(range(20)), "a": [np.nan] * 19 + [1.0]})
    with pytest.raises(DataError, match="row 1, 2, 3, 4, 5 and 14 more"):
        prepare(table, DataSettings(), role="passive")


def test_row_numbers_count_through_chunks(tmp_path: Path) -> None:
    lines = ["id,a", *(f"{i},{i * 2}" for i in range(50)), "50,"]
    (tmp_path / "x.csv").write_text("\n".join(lines))
    with pytest.raises(DataError, match="column 'a', row 51"):
        prepare(TableFile(tmp_path / "x.csv", chunk_cells=8), DataSettings(), role="passive")


def test_empty_tables_and_absent_columns_are_refused() -> None:
    with pytest.raises(DataError, match="no row"):
        prepare(Table.of({"id": [], "a": []}), DataSettings(), role="passive")
    with pytest.raises(DataError, match="no feature column"):
        prepare(Table.of({"id": [1, 2]}), DataSettings(), role="passive")
    for settings in (
        DataSettings(columns=("gone",)),
        DataSettings(id_columns=("gone",)),
        DataSettings(label_column="gone"),
        DataSettings(rules=(NamedColumn(name="gone"),)),
    ):
        with pytest.raises(DataError, match="no column 'gone'"):
            prepared(settings)


def test_a_passive_party_has_no_label() -> None:
    with pytest.raises(DataError, match=r"passive party has no label.*'y'"):
        prepared(ACTIVE, role="passive")
    assert prepared(DataSettings(columns=("age",)), role="passive").y is None


@pytest.mark.parametrize("learned", [{"scale": "learn"}, {"centre": "learn"}])
def test_a_constant_column_stops_its_party_only_where_a_constant_is_learned(learned) -> None:
    """Bug: with declared constants one row decided whether the party took part."""
    age = [3.25] * 4
    rule = NamedColumn(name="age", **learned)
    with pytest.raises(DataError, match="'age' is constant"):
        prepared(DataSettings(label_column="y", rules=(rule, SEX)), age=age)
    assert prepared(ACTIVE, age=age).X[:, 0].tolist() == age


def test_a_constant_category_is_refused_when_learned_and_kept_when_declared() -> None:
    learn = NamedColumn(name="sex", categories="learn")
    with pytest.raises(DataError, match="'sex' is constant"):
        prepared(DataSettings(label_column="y", rules=(learn,)), sex=["f"] * 4)
    assert prepared(ACTIVE, sex=["f"] * 4).X[:, 2].tolist() == [0, 0, 0, 0]


def test_cells_that_would_overflow_are_refused() -> None:
    for scale, cell, message in ((1.0, 1e300, "beyond 1e"), (1e-300, 5e17, "too large for its")):
        table = Table.of({"id": [1, 2], "a": [0.0, cell]})
        settings = DataSettings(default=ColumnRule(scale=scale))
        with pytest.raises(DataError, match=f"column 'a', row 2: .*{message}"):
            prepare(table, settings, role="passive")


@pytest.mark.parametrize(
    "fields",
    [
        {"label_column": "id"},
        {"label_column": "y", "columns": ("y",)},
        {"columns": ("a", "a")},
        {"rules": (SEX, SEX)},
        {"label_column": "y", "label_classes": ("a", "b"), "label_scale": 2.0},
        {"id_columns": ()},
        {"label_scale": 0.0},
        {"unknown_field": 1},
    ],
)
def test_impossible_settings_are_refused(fields: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        DataSettings(**fields)


@pytest.mark.parametrize(
    "fields",
    [
        {"categories": ("a",)},
        {"categories": ("a", "a")},
        {"categories": ("a", "b"), "centre": 1.0},
        {"categories": ("a", "b"), "missing": 1.0},
        {"missing_category": "a"},
        {"scale": -1.0},
        {"centre": float("nan")},
    ],
)
def test_impossible_rules_are_refused(fields: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        ColumnRule(**fields)


def test_a_column_of_empty_cells_has_nothing_to_learn() -> None:
    rule = NamedColumn(name="age", missing="learn", scale="learn")
    with pytest.raises(DataError, match="'age' is constant"):
        prepared(DataSettings(label_column="y", rules=(rule, SEX)), age=[None] * 4)


def test_a_constant_label_has_no_scale_to_learn() -> None:
    settings = DataSettings(label_column="y", label_scale="learn", rules=(SEX,))
    with pytest.raises(DataError, match="'label' is constant; its scale cannot be learned"):
        prepared(settings, y=[1, 1, 1, 1])


def test_too_many_categories_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "MAX_CATEGORIES", 3)
    settings = DataSettings(columns=("id2",), rules=(NamedColumn(name="id2", categories="learn"),))
    with pytest.raises(DataError, match="'id2' has more than 3 categories"):
        prepared(settings, role="passive", id2=["a", "b", "c", "d"])


def test_all_faults_of_a_file_come_at_once_with_their_remedies():
    """Of every column its first fault, also where the columns are wrong in different chunks."""
    parts: list[dict[str, list]] = [
        {"id": ["a", "b"], "age": ["1", "x"], "pay": ["1", "2"], "city": ["u", "v"], "y": [0, 1]},
        {"id": ["c", ""], "age": ["q", "4"], "pay": ["", "4"], "city": ["u", "w"], "y": ["no", 1]},
    ]

    class Chunked:
        names = tuple(parts[0])
        hint = ""

        def pieces(self, columns, *, numeric):
            return iter(())

        places = pieces

        def chunks(self, columns=None, *, numeric=(), after=0):
            for first, part in zip((1, 3), parts, strict=True):
                cells = [[str(cell) for cell in part[name]] for name in columns]
                yield Table(columns, cells, first_row=first)

    rules = (NamedColumn(name="city", categories=("u", "v")),)
    with pytest.raises(DataError) as stop:
        prepare(Chunked(), DataSettings(label_column="y", rules=rules), role="active")
    assert str(stop.value).split("; column ") == [
        "column 'age', row 2: the cell is not a number; correct it, or declare categories in "
        "data.rules",
        "'pay', row 3: the cell is empty; state missing in data.rules: a number, or learn for the "
        "mean",
        "'city', row 4: the category is not in the declared list; add it, or state unknown = "
        '"zero"',
        "'id', row 4: the id is empty",
        "'y', row 3: the label is not a number; list its values in data.label_classes, the one for "
        "0 first",
    ]


def test_of_many_faulty_columns_some_are_shown_and_the_others_counted():
    wide = {"id": ["a", "b"], **{f"c{n}": ["1", "x"] for n in range(30)}}
    with pytest.raises(DataError, match="and 10 more columns"):
        prepare(Table.of(wide), DataSettings(), role="passive")
