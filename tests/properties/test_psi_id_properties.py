"""Any text and any integer: normal forms are stable, and equal exactly when the ids are."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from hdpvfl_mq.psi import normalise
from hdpvfl_mq.psi.ids import MAX_ID_BYTES
from hdpvfl_mq.psi.order import row_order
from schemas.config import IdRules

texts = st.text(
    st.one_of(
        st.characters(exclude_categories=["Cs"]),
        st.sampled_from(" \t\u00a0\u2003\ufeff\u0130\u0345ßſK\u1e9eﬁ¨\u00b4Åé\u0301０٣"),
    ),
    max_size=12,
)
profiles = st.builds(
    IdRules,
    kind=st.just("text"),
    casefold=st.booleans(),
    duplicates=st.just("first"),
    empties=st.just("drop"),
)
integers = st.integers(min_value=-(10**60), max_value=10**60) | st.integers(-300, 300)


@given(st.lists(texts, max_size=20), profiles)
def test_normal_text_is_its_own_normal_form(values: list[str], profile: IdRules) -> None:
    once = list(normalise([values], profile).ids)
    again = normalise([[each.decode() for each in once]], profile)
    assert list(again.ids) == once
    assert again.rows.tolist() == list(range(len(once)))


@given(st.lists(texts, max_size=20), profiles)
def test_rows_count_up_and_nothing_is_lost(values: list[str], profile: IdRules) -> None:
    result, first = normalise([values], profile), dict[bytes, int]()
    for row, value in enumerate(values):
        for each in normalise([[value]], profile).ids:  # none if the value is empty
            first.setdefault(each, row)
    assert list(zip(result.ids, result.rows.tolist(), strict=True)) == list(first.items())


@given(texts, st.sampled_from([" ", "\t", "\u2003", "\n"]), st.booleans())
def test_outer_whitespace_and_case_do_not_matter(text: str, space: str, casefold: bool) -> None:
    profile = IdRules(casefold=casefold, empties="drop")
    padded = normalise([[space + text + space]], profile).ids
    assert list(padded) == list(normalise([[text]], profile).ids)


@given(integers, st.integers(0, 30), st.sampled_from(["", " ", "\t"]))
def test_all_spellings_of_an_integer_are_one_id(value: int, zeros: int, space: str) -> None:
    sign = "-" if value < 0 else "+"
    spelled = f"{space}{sign}{'0' * zeros}{abs(value)}{space}"
    profile = IdRules(kind="integer", duplicates="first")
    assert list(normalise([[value, spelled, str(value)]], profile).ids) == [str(value).encode()]


@given(st.lists(integers, unique=True, max_size=30))
def test_different_integers_stay_different(values: list[int]) -> None:
    assert len(normalise([values], IdRules(kind="integer")).ids) == len(values)


@given(st.lists(st.tuples(texts, texts), unique=True, max_size=20))
def test_joined_columns_are_equal_only_if_all_parts_are(rows: Sequence[tuple[str, str]]) -> None:
    two = IdRules(columns=2, duplicates="first", empties="drop")
    joined = normalise([[a for a, _ in rows], [b for _, b in rows]], two)
    one = IdRules(duplicates="first", empties="drop")
    parts = [
        tuple(list(normalise([[part]], one).ids) for part in rows[row])
        for row in joined.rows.tolist()
    ]
    assert len({repr(part) for part in parts}) == len(joined.ids)


@given(st.sets(st.binary(min_size=1, max_size=MAX_ID_BYTES // 64), max_size=40), st.randoms())
def test_order_is_independent_of_the_rows(ids: set[bytes], shuffler: object) -> None:
    seed = b"\7" * 32
    rows = sorted(ids)
    shuffled = rows.copy()
    shuffler.shuffle(shuffled)  # type: ignore[attr-defined]  # hypothesis says object
    assert [rows[p] for p in row_order(rows, seed)] == [
        shuffled[p] for p in row_order(shuffled, seed)
    ]
