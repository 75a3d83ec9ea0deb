"""The integer tables: their law to the last bit, and draws that follow them exactly."""

from __future__ import annotations

import inspect
import pickle
import tracemalloc
from fractions import Fraction

import gmpy2
import numpy as np
import pytest

from hdpvfl_mq.privacy import table as tables
from hdpvfl_mq.privacy.table import (
    CUT,
    WHOLE,
    AliasTable,
    discrete_gaussian,
    integer_table,
    rounded_gaussian,
)
from tests.memo import shared_in

WORD = 2**64
STDS = (0.3, 1.0, 7.5, 31.9, 32.0, 160.0)


def law(table: AliasTable) -> dict[int, int]:
    """Units of 2^-128 that a draw gives to each value, in exact integers."""
    capacity = WHOLE >> table.index_bits
    units: dict[int, int] = {}
    pairs = table.values.reshape(-1, 2)
    ends = zip(table.ends.tolist(), table.ends_low.tolist(), strict=True)
    for column, ((alias, own), (high, low)) in enumerate(zip(pairs.tolist(), ends, strict=True)):
        threshold = high * WORD + low - column * capacity
        assert 0 <= threshold <= capacity
        units[own] = units.get(own, 0) + threshold
        units[alias] = units.get(alias, 0) + capacity - threshold
    return units


@pytest.mark.parametrize("std", STDS)
def test_weights_are_the_rounded_law_and_add_up_exactly(std: float) -> None:
    units = law(rounded_gaussian(std))
    assert sum(units.values()) == WHOLE
    with gmpy2.context(precision=300):
        scale = 1 / (gmpy2.mpfr(std) * gmpy2.sqrt(gmpy2.mpfr(2)))
        for value in {0, 1, 2, int(std), int(4 * std), int(9 * std)}:
            below = gmpy2.erfc((value - gmpy2.mpfr(0.5)) * scale)
            above = gmpy2.erfc((value + gmpy2.mpfr(0.5)) * scale)
            exact = (below - above) / 2 * WHOLE
            assert abs(units[value] - exact) <= 1  # two entries, each rounded to nearest
            assert units[value] == units[-value]


def test_a_table_is_made_in_a_few_lists() -> None:
    make = inspect.unwrap(tables._table)  # the tests share what it makes
    tracemalloc.start()
    table = make(160.0, tables._cells_discrete)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 160 * len(table.ends)  # the weights alone take 60 bytes a column


@pytest.mark.parametrize("std", [0.5, 7.6, 160.0, 512.0])
def test_weights_of_the_discrete_law(std: float) -> None:
    units = law(discrete_gaussian(std))
    assert sum(units.values()) == WHOLE
    with gmpy2.context(precision=300):
        scale = -1 / (2 * gmpy2.mpfr(std) ** 2)
        whole = sum(gmpy2.exp(j * j * scale) for j in range(-int(20 * std) - 9, int(20 * std) + 10))
        for value in {0, 1, int(std), int(5 * std)}:
            exact = gmpy2.exp(value * value * scale) / whole * WHOLE
            assert abs(units[value] - exact) <= 1


@pytest.mark.parametrize("std", STDS)
def test_the_stated_distance_covers_roundings_and_tails(std: float) -> None:
    table = rounded_gaussian(std)
    reach = int(CUT * std) + 2
    assert all(units == 0 for value, units in law(table).items() if abs(value) > reach)
    rounding = Fraction(2 * reach + 1, 2 * WHOLE)
    with gmpy2.context(precision=300):
        tail = gmpy2.erfc((reach + 0.5) / (gmpy2.mpfr(std) * gmpy2.sqrt(gmpy2.mpfr(2))))
        assert table.distance >= gmpy2.mpfr(rounding) + tail
        assert table.distance < gmpy2.mpfr(rounding) * 2 + gmpy2.exp2(-120)


def test_a_draw_compares_all_128_bits() -> None:
    table = rounded_gaussian(5.0)
    first = np.arange(len(table.ends), dtype=np.uint64) << np.uint64(64 - table.index_bits)
    column = int(np.flatnonzero((table.ends_low > 0) & (table.ends > first))[0])
    high, low = table.ends[column], table.ends_low[column]
    alias, own = table.values[2 * column], table.values[2 * column + 1]

    def draw(word):
        return table.draw(np.array([high]), np.array([word], dtype=np.uint64))[0]

    assert draw(low - np.uint64(1)) == own
    assert draw(low) == alias


def test_the_extreme_uniforms_are_drawn_too() -> None:
    table = rounded_gaussian(5.0)
    ends = np.array([0, WORD - 1], dtype=np.uint64)
    assert np.abs(table.draw(ends, ends)).max() <= 5.0 * CUT + 2


def test_a_full_column_gives_its_value_up_to_its_last_word():
    """The last column's end is 2^64, which no word holds."""
    table = integer_table([WHOLE // 4] * 4)
    assert law(table) == dict.fromkeys(range(4), WHOLE // 4)
    first = [column << 62 for column in range(4)]
    for offset in (0, 2**62 - 1):
        high = np.array([word + offset for word in first], dtype=np.uint64)
        for low in (0, WORD - 1):
            assert table.draw(high, np.full(4, low, dtype=np.uint64)).tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("spacing", [1, 64, 64**3, 64**6])
def test_a_scaled_table_draws_multiples_of_the_same_samples(spacing):
    table = discrete_gaussian(160.0)
    words = np.random.default_rng(5).integers(0, 2**64, (2, 5000), dtype=np.uint64)
    expected = [spacing * each for each in table.draw(*words).tolist()]
    assert table.times(spacing).draw(*words).tolist() == expected


def test_a_table_that_processes_of_tests_share_is_the_computed_one(monkeypatch, tmp_path):
    compute = getattr(tables._table, "__wrapped__", tables._table)
    table_of = shared_in(tmp_path, compute)
    computed = compute(40.0, tables._cells_discrete)
    made = table_of(40.0, tables._cells_discrete)
    monkeypatch.setattr(pickle, "dumps", None)  # nothing is computed and written any more
    read = table_of(40.0, tables._cells_discrete)
    for shared in (made, read):
        assert law(shared) == law(computed)
        assert shared.distance == computed.distance
        assert shared.values.dtype == computed.values.dtype
        assert np.array_equal(shared.ends, computed.ends)
    assert len(list(tmp_path.iterdir())) == 1
    with pytest.raises(TypeError):  # another law is another table
        table_of(40.0, tables._cells_by_series)
