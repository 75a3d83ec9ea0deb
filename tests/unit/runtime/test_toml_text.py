"""Plain values as TOML: the standard library's reader gets back what was written."""

from __future__ import annotations

import tomllib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hdpvfl_mq.runtime.toml_text import toml_text

TEXTS = st.text(st.characters(codec="utf-8"), max_size=12)
NUMBERS = st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
SINGLE = TEXTS | NUMBERS | st.booleans()
VALUES = st.recursive(
    SINGLE,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)


@settings(deadline=None)  # machines that run tests are busy
@given(st.dictionaries(TEXTS, VALUES, max_size=6))
def test_what_is_written_is_read(values):
    assert tomllib.loads(toml_text(values)) == values


def test_it_reads_like_a_file_that_a_person_wrote():
    values = {
        "party": "shop",
        "ids": {"kind": "text", "columns": 1},
        "limits": [1.5, 1e-05],
        "peers": [{"party": "bank", "deep": {"x": True}}, {"party": "telco"}],
    }
    assert toml_text(values) == (
        'party = "shop"\nlimits = [1.5, 1e-05]\n\n[ids]\nkind = "text"\ncolumns = 1\n\n'
        '[[peers]]\nparty = "bank"\n\n[peers.deep]\nx = true\n\n[[peers]]\nparty = "telco"\n'
    )


def test_a_value_that_toml_does_not_have_is_refused():
    with pytest.raises(TypeError, match="NoneType"):
        toml_text({"a": None})
