"""A memo makes a value once for a key, and again for another key or after it was emptied."""

from __future__ import annotations

from itertools import count

from hdpvfl_mq.arrays.memo import Memo


def test_a_value_is_made_once_for_each_key() -> None:
    memo, made = Memo(), count()
    asked = [memo.once("rows", key, made.__next__) for key in ("a", "a", "b", "b", "a")]
    assert asked == [0, 0, 1, 1, 2]  # the previous key's value is not kept


def test_names_do_not_replace_each_other() -> None:
    memo, made = Memo(), count()
    asked = [memo.once(name, "a", made.__next__) for name in ("rows", "order", "rows", "order")]
    assert asked == [0, 1, 0, 1]


def test_a_value_of_none_is_a_value() -> None:
    memo, calls = Memo(), list[int]()
    for _ in range(2):
        assert memo.once("rows", "a", lambda: calls.append(1)) is None
    assert calls == [1]


def test_a_forgotten_value_is_made_again() -> None:
    memo, made = Memo(), count()
    memo.once("rows", "a", made.__next__)
    memo.forget()
    assert memo.once("rows", "a", made.__next__) == 1
