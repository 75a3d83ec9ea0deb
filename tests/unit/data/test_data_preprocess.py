"""Settings applied to rows: constants given and learned, bad input refused by row number."""

from __future__ import annotations

import hashlib
import json
import tomllib
import tracemalloc
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import feather
from pydantic import ValidationError

from hdpvfl_mq.data.fingerprint import Fingerprint, OtherColumns
from hdpvfl_mq.data.preprocess import prepare, prepare_mapped
from hdpvfl_mq.data.readers import TableFile
from hdpvfl_mq.data.tables import TEXT, Table
from hdpvfl_mq.errors import DataError
from schemas.data import ColumnRule, DataSettings, NamedColumn
from tests.unit.data.four_rows import ACTIVE, GOOD, SEX, prepared


def test_columns_become_numbers_in_the_order_of_the_file() -> None:
    data = prepared(ACTIVE)
    assert data.column_names == ("age", "sex=f", "sex=m")
    assert data.X.tolist() == [[1, 1, 0], [2, 0, 1], [3, 0, 1], [6, 1, 0]]
    assert data.y is not None
    assert data.y.tolist() == [0, 1, 1, 0]
    assert data.ids[0].tolist() == GOOD["id"]
    assert (data.rows, data.weights, data.offset) == (4, None, None)
    assert not data.conditional_on_preprocessing
    assert repr(data) == "<PreparedData of 4 rows and 3 columns>"


def test_given_constants_are_used_and_not_conditional() -> None:
    age = NamedColumn(name="age", centre=2.0, scale=4.0)
    data = prepared(DataSettings(label_column="y", rules=(age, SEX)))
    assert data.X[:, 0].tolist() == [-0.25, 0.0, 0.25, 1.0]
    assert not data.conditional_on_preprocessing


def test_learned_constants_are_stated_and_reused() -> None:
    learn = ColumnRule(centre="learn", scale="learn")
    sex = NamedColumn(name="sex", categories="learn")
    data = prepared(DataSettings(label_column="y", default=learn, rules=(sex,)))
    assert data.conditional_on_preprocessing
    assert data.X[:, 0].mean() == pytest.approx(0.0)
    assert data.X[:, 0].std() == pytest.approx(1.0)
    assert "learn" not in data.settings.model_dump_json().replace('"learned"', "")
    later = DataSettings(**{**dict(data.settings), "label_column": None})
    row = Table.of({"id": ["z"], "age": [3.0], "sex": ["m"]})
    again = prepare(row, later, role="passive", to_score=True)
    assert again.X.tolist() == [[0.0, 0.0, 1.0]]
    assert again.conditional_on_preprocessing


def test_settled_settings_survive_json() -> None:
    settings = prepared(DataSettings(label_column="y", rules=(SEX,))).settings
    assert DataSettings.model_validate_json(settings.model_dump_json()) == settings


@pytest.mark.parametrize("kind", ["centre", "scale", "missing"])
def test_any_learned_constant_marks_the_data(kind: str) -> None:
    rule = NamedColumn(name="age", **{kind: "learn"})
    assert prepared(DataSettings(label_column="y", rules=(rule, SEX))).conditional_on_preprocessing


@pytest.mark.parametrize("kind", ["label_centre", "label_scale"])
def test_a_learned_label_constant_marks_the_data(kind: str) -> None:
    data = prepared(DataSettings(label_column="y", rules=(SEX,), **{kind: "learn"}))
    assert data.conditional_on_preprocessing
    assert data.y is not None
    assert data.y.tolist() == ([-0.5, 0.5, 0.5, -0.5] if kind == "label_centre" else [0, 2, 2, 0])


def test_missing_cells_follow_their_policy() -> None:
    ages = ["1", "", "NA", "5"]
    fixed = NamedColumn(name="age", missing=7.0)
    learned = NamedColumn(name="age", missing="learn")
    sex = NamedColumn(name="sex", categories=("f", "m"), missing_category="m")
    for rule, filled in ((fixed, 7.0), (learned, 3.0)):
        settings = DataSettings(label_column="y", rules=(rule, sex))
        data = prepared(settings, age=ages, sex=["f", "", None, "m"])
        assert data.X[:, 0].tolist() == [1.0, filled, filled, 5.0]
        assert data.X[:, 2].tolist() == [0, 1, 1, 1]


def test_an_unknown_category_may_be_none_of_them() -> None:
    sex = NamedColumn(name="sex", categories=("f", "m"), unknown="zero")
    data = prepared(DataSettings(label_column="y", rules=(sex,)), sex=["f", "m", "x", "f"])
    assert data.X[2, 1:].tolist() == [0.0, 0.0]


def test_categories_of_numbers_are_written_without_a_point() -> None:
    for cells in ([1, 2, 1, 2], [1.0, 2.0, 1.0, 2.0], ["1", "2", "1", "2"]):
        rule = NamedColumn(name="sex", categories=("1", "2"))
        data = prepared(DataSettings(label_column="y", rules=(rule,)), sex=cells)
        assert data.X[:, 1].tolist() == [1, 0, 1, 0]


def test_categories_may_be_numbers_with_gaps() -> None:
    rule = NamedColumn(name="sex", categories="learn")
    floats = prepared(DataSettings(label_column="y", rules=(rule,)), sex=[0.5, 1.0, 0.5, 1.0])
    assert floats.column_names == ("age", "sex=0.5", "sex=1")
    filled = NamedColumn(name="sex", categories="learn", missing_category="none")
    data = prepared(DataSettings(label_column="y", rules=(filled,)), sex=[2.0, np.nan, 2.0, 2.0])
    assert data.column_names == ("age", "sex=2", "sex=none")


def test_ids_in_an_array_of_objects_are_text() -> None:
    ids = np.array(["a", "b"], dtype=object)
    table = Table(["id", "a"], [ids, np.array([0.0, 1.0])])
    assert prepare(table, DataSettings(), role="passive").ids[0].tolist() == ["a", "b"]


def test_text_labels_take_declared_classes() -> None:
    settings = DataSettings(label_column="y", label_classes=("no", "yes", "so"), rules=(SEX,))
    assert prepared(settings, y=["yes", "no", "so", "no"]).y.tolist() == [1, 0, 2, 0]
    with pytest.raises(DataError, match="column 'y', row 3: the label is not in the declared"):
        prepared(settings, y=["yes", "no", "s3cret", "no"])


def test_weights_offsets_and_several_id_columns() -> None:
    settings = DataSettings(
        id_columns=("id", "site"),
        label_column="y",
        weight_column="w",
        offset_column="o",
        rules=(SEX,),
    )
    data = prepared(settings, site=[1, 1, 2, 2], w=[1, 2, 3, 4], o=[0.0, 0.1, 0.2, 0.3])
    assert [column.tolist() for column in data.ids] == [GOOD["id"], [1, 1, 2, 2]]
    assert data.weights is not None
    assert data.weights.tolist() == [1, 2, 3, 4]
    assert data.offset is not None
    assert data.offset.tolist() == [0.0, 0.1, 0.2, 0.3]
    assert data.column_names == ("age", "sex=f", "sex=m")


def test_the_fingerprint_knows_every_part() -> None:
    base = prepared(ACTIVE).fingerprint
    assert base == prepared(ACTIVE).fingerprint
    changes = (
        {"age": [1.0, 2.0, 3.0, 6.5]},
        {"y": [1, 1, 1, 0]},
        {"id": ["a", "b", "c", "e"]},
        {"id": [1, 2, 3, 4]},
        {"sex": ["m", "m", "m", "f"]},
    )
    others = {prepared(ACTIVE, **change).fingerprint for change in changes}
    assert len({base, *others}) == 6
    weighted = DataSettings(label_column="y", weight_column="w", rules=(SEX,))
    assert prepared(weighted, w=[1, 1, 1, 1]).fingerprint != base


def test_ids_enter_the_fingerprint_as_json() -> None:
    ids = (np.array(['a"b', "é\n\U0001f600", "\x7f"], dtype=TEXT), np.array([1, -2, 2**62]))
    block = np.zeros((3, 1))
    fingerprint = Fingerprint(("x",))
    fingerprint.add(block, OtherColumns(ids, None, None, None))
    lines = [json.dumps(key) + "\n" for key in zip(*(c.tolist() for c in ids), strict=True)]
    expected = hashlib.sha256(json.dumps([1, ["x"]]).encode())
    for content in (block.tobytes(), "".join(lines).encode(), b"", b"", b""):
        expected.update(hashlib.sha256(content).digest())
    assert fingerprint.digest() == expected.digest()


def test_disk_equals_memory_and_needs_a_few_chunks(tmp_path: Path) -> None:
    rng = np.random.default_rng(31)
    rows, columns = 20_000, 40
    ids = np.arange(rows)
    named = {f"x{i}": rng.normal(size=rows) * 100.0 + i for i in range(columns)}
    feather.write_feather(pa.table({"id": ids, **named}), tmp_path / "x.arrow", chunksize=500)
    size = 8 * rows * (columns + 1)
    del named
    source = TableFile(tmp_path / "x.arrow", chunk_cells=2**14)
    settings = DataSettings(default=ColumnRule(centre="learn", scale="learn"))
    tracemalloc.start()
    taken: list[int] = []

    def mapped(shape, dtype):
        return np.lib.format.open_memmap(tmp_path / "x.npy", mode="w+", dtype=dtype, shape=shape)

    disk = prepare_mapped(
        source, settings, mapped, lambda ids: taken.append(len(ids[0])), role="passive"
    )
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    memory = prepare(source, settings, role="passive")
    assert peak < size / 4
    assert disk.X.dtype == np.float32
    assert isinstance(disk.X, np.memmap)
    assert not disk.X.flags.writeable
    assert np.allclose(disk.X, memory.X, atol=1e-6)
    assert disk.fingerprint == memory.fingerprint
    assert disk.ids == ()
    assert sum(taken) == rows
    assert np.array_equal(memory.ids[0], ids)


def test_settings_come_from_toml() -> None:
    text = """
    file = "bank.csv"
    id_columns = ["name", "born"]
    label_column = "y"
    label_scale = 1000
    [default]
    centre = "learn"
    scale = "learn"
    [[rules]]
    name = "sex"
    categories = ["f", "m"]
    """
    settings = DataSettings.model_validate_json(json.dumps(tomllib.loads(text)))
    assert settings.rules == (SEX,)
    assert settings.label_scale == 1000.0


def test_one_class_against_the_rest_on_the_same_rows() -> None:
    classes = ("f", "m", "x")
    columns = {"label_column": "sex", "label_classes": classes, "columns": ("age",)}
    whole = prepared(DataSettings(**columns), sex=["f", "x", "m", "x"])
    runs = [
        prepared(DataSettings(**columns, label_positive=name), sex=["f", "x", "m", "x"])
        for name in classes
    ]
    assert [run.y.tolist() for run in runs] == [[1, 0, 0, 0], [0, 0, 1, 0], [0, 1, 0, 1]]
    assert {run.fingerprint for run in runs} == {whole.fingerprint}  # entities resolved once
    with pytest.raises(ValidationError, match="label_positive must be one of label_classes"):
        DataSettings(**columns, label_positive="d")


KINDS = {
    "binary": ((0, 1, -1), (2, 0.5)),
    "count": ((0, 1, 900), (-1, 0.5)),
    "positive": ((0.1, 1, 900), (0, -1)),
    "real": ((-1, 0.5, 900), ()),
}


@pytest.mark.parametrize("kind", KINDS)
def test_labels_are_of_the_declared_kind_or_refused_by_row(kind) -> None:
    settings = DataSettings(label_column="y", label_kind=kind, rules=(SEX,))
    good, bad = KINDS[kind]
    y = prepared(settings, y=[*good, good[0]]).y
    assert y is not None
    assert y.tolist() == [*good, good[0]]
    for value in bad:
        with pytest.raises(DataError, match="column 'y', row 3: the label must"):
            prepared(settings, y=[good[0], good[1], value, good[0]])


def test_a_kind_follows_from_the_other_settings_and_never_from_rows() -> None:
    classes = {"label_classes": ("a", "b", "c")}
    assert DataSettings(label_column="y").declared_kind == "binary"
    assert DataSettings(label_column="y", label_scale=2.0).declared_kind == "real"
    assert DataSettings(label_column="y", label_centre="learn").declared_kind == "real"
    assert DataSettings(label_column="y", **classes).declared_kind == "count"
    assert DataSettings(label_column="y", label_positive="b", **classes).declared_kind == "binary"
    for kind in ("positive", "binary"):
        with pytest.raises(ValidationError, match="label_kind"):
            DataSettings(label_column="y", label_kind=kind, **classes)


def test_a_negative_sample_weight_is_refused_by_row() -> None:
    settings = DataSettings(label_column="y", weight_column="age", rules=(SEX,))
    with pytest.raises(DataError, match="column 'age', row 2: the sample weight is negative"):
        prepared(settings, age=[1.0, -2.0, 3.0, 4.0])
