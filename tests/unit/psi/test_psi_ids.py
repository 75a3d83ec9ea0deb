"""Normal forms, refusals and policies of identifiers."""

from __future__ import annotations

import numpy as np
import pytest

from hdpvfl_mq.errors import DataError
from hdpvfl_mq.psi import normalise
from hdpvfl_mq.psi.ids import MAX_ID_BYTES, rules_digest
from schemas.config import IdRules

TEXT = IdRules()
INTEGER = IdRules(kind="integer")


@pytest.mark.parametrize(
    ("value", "canonical"),
    [
        ("  Ann ", "Ann"),
        ("Ａｎｎ", "Ann"),
        ("e\u0301", "\u00e9"),
        ("007", "007"),
        ("\u00a0x\u2003", "x"),
        (np.str_("y"), "y"),
    ],
)
def test_text_is_compatibility_composed_and_stripped(value: str, canonical: str) -> None:
    assert list(normalise([[value]], TEXT).ids) == [canonical.encode()]


def test_case_is_kept_unless_folded() -> None:
    values = ["STRASSE", "straße", "Strasse"]
    assert len(normalise([values], TEXT).ids) == 3
    folded = IdRules(casefold=True, duplicates="first")
    assert list(normalise([values], folded).ids) == [b"strasse"]


@pytest.mark.parametrize(
    ("value", "canonical"),
    [
        (7, b"7"),
        (np.int64(-7), b"-7"),
        (np.uint64(2**64 - 1), b"18446744073709551615"),
        ("007", b"7"),
        (" +7 ", b"7"),
        ("-0", b"0"),
        ("000", b"0"),
        ("１２", b"12"),
        (2**53 + 1, b"9007199254740993"),
        (10**1000, b"1" + b"0" * 1000),
    ],
)
def test_integers_are_canonical_decimals(value: object, canonical: bytes) -> None:
    assert list(normalise([[value]], INTEGER).ids) == [canonical]


@pytest.mark.parametrize(
    ("value", "profile"),
    [
        (3.0, INTEGER),
        (np.float32(3), INTEGER),
        (True, INTEGER),
        ("3.0", INTEGER),
        ("secret", INTEGER),
        ("1e3", INTEGER),
        (b"secret", INTEGER),
        (10**2000, INTEGER),
        ("9" * (MAX_ID_BYTES + 1), INTEGER),
        (31337, TEXT),
        (3.0, TEXT),
        (b"secret", TEXT),
        ("\ud800", TEXT),
        ("x" * (MAX_ID_BYTES + 1), TEXT),
    ],
)
def test_unusable_values_are_refused_by_place_and_not_shown(
    value: object, profile: IdRules
) -> None:
    good: object = "1" if profile.kind == "text" else 1
    with pytest.raises(DataError, match="id column 2, row 3") as refusal:
        normalise([["1", "2", "3"], [good, good, value]], IdRules(kind=profile.kind, columns=2))
    assert "secret" not in str(refusal.value)
    assert "31337" not in str(refusal.value)


def test_float_column_is_named_as_such() -> None:
    with pytest.raises(DataError, match=r"column 1, row 1: .* float"):
        normalise([np.array([3.0, 4.0])], INTEGER)


@pytest.mark.parametrize("missing", [None, "", "   ", float("nan")])
def test_empty_ids_are_refused_or_dropped(missing: object) -> None:
    columns = [["a", missing, "b", missing]]
    with pytest.raises(DataError, match="rows 2, 4"):
        normalise(columns, TEXT)
    kept = normalise(columns, IdRules(empties="drop"))
    assert (list(kept.ids), kept.rows.tolist()) == ([b"a", b"b"], [0, 2])


def test_a_missing_part_makes_the_id_empty() -> None:
    profile = IdRules(columns=2, empties="drop")
    assert normalise([["a", "b"], ["", "c"]], profile).rows.tolist() == [1]


def test_repeated_ids_are_refused_or_the_first_is_kept() -> None:
    columns = [["a", "b", "a ", "a"]]
    with pytest.raises(DataError, match="rows 3, 4"):
        normalise(columns, TEXT)
    kept = normalise(columns, IdRules(duplicates="first"))
    assert kept.rows.tolist() == [0, 1]


def test_only_the_first_rows_are_listed() -> None:
    with pytest.raises(DataError, match="rows 2, 3, 4, 5, 6 and 94 more"):
        normalise([["same"] * 100], TEXT)


def test_columns_cannot_run_into_each_other() -> None:
    profile = IdRules(columns=2)
    assert len(normalise([["ab", "a"], ["c", "bc"]], profile).ids) == 2


def test_wrong_number_or_length_of_columns_is_refused() -> None:
    with pytest.raises(DataError, match="2 id columns"):
        normalise([["a"]], IdRules(columns=2))
    with pytest.raises(DataError, match="different lengths"):
        normalise([["a"], ["b", "c"]], IdRules(columns=2))


def test_no_rows_are_no_ids() -> None:
    assert list(normalise([[]], TEXT).ids) == []


def test_every_field_of_a_profile_changes_its_digest() -> None:
    profiles = [
        TEXT,
        IdRules(kind="integer"),
        IdRules(columns=2),
        IdRules(casefold=True),
        IdRules(duplicates="first"),
        IdRules(empties="drop"),
    ]
    assert len({rules_digest(profile) for profile in profiles}) == len(profiles)
    assert rules_digest(IdRules()) == rules_digest(TEXT)
