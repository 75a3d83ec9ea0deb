"""X'X on disk: found by data set and columns, as a run first saw it; refused if damaged."""

from __future__ import annotations

import numpy as np
import pytest

from hdpvfl_mq.errors import IntegrityError
from parties.process.gram_store import GramStore
from schemas import tensor
from tests.samples import release

COLUMNS = ("age", "income")


def gram(run: str = "first", noise_std: float = 2.0):
    made = release(np.arange(3), kind="gram", party="shop")
    return type(made)(**{**dict(made), "release_id": f"{run}/shop/gram/0", "noise_std": noise_std})


def test_a_later_run_finds_it_and_an_earlier_one_never_does(tmp_path):
    first = GramStore(tmp_path, "first", "people", COLUMNS)
    assert first.usable() is None
    first.keep(gram())
    assert first.usable() is None  # its journal is folded against what it saw
    assert GramStore(tmp_path, "second", "people", COLUMNS).usable() == gram()


def test_one_of_many_columns_is_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(tensor, "BUFFER_ABOVE", 16)  # above, a tensor is a view of its array
    large = gram()
    assert isinstance(large.tensor.data, memoryview)
    GramStore(tmp_path, "first", "people", COLUMNS).keep(large)
    found = GramStore(tmp_path, "second", "people", COLUMNS).usable()
    assert found is not None
    assert found.tensor.array().tolist() == large.tensor.array().tolist()


def test_other_columns_or_data_sets_do_not(tmp_path):
    GramStore(tmp_path, "first", "people", COLUMNS).keep(gram())
    assert GramStore(tmp_path, "a", "others", COLUMNS).usable() is None
    assert GramStore(tmp_path, "b", "people", ("age", "height")).usable() is None


def test_the_least_noise_is_taken(tmp_path):
    for run, noise_std in (("one", 3.0), ("two", 1.0), ("three", 2.0)):
        GramStore(tmp_path, run, "people", COLUMNS).keep(gram(run, noise_std))
    found = GramStore(tmp_path, "later", "people", COLUMNS).usable()
    assert found is not None
    assert found.noise_std == 1.0


def test_a_damaged_file_stops(tmp_path):
    GramStore(tmp_path, "first", "people", COLUMNS).keep(gram())
    (path,) = tmp_path.glob("*.gram")
    path.write_bytes(path.read_bytes()[:-5])
    with pytest.raises(IntegrityError):
        GramStore(tmp_path, "second", "people", COLUMNS).usable()


def test_statistics_of_another_run_under_its_name_stop(tmp_path):
    GramStore(tmp_path, "first", "people", COLUMNS).keep(gram())
    (path,) = tmp_path.glob("*.gram")
    path.write_text(gram("other").model_dump_json())
    with pytest.raises(IntegrityError, match="damaged"):
        GramStore(tmp_path, "second", "people", COLUMNS).usable()
