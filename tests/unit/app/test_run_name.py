"""A run without a name of its own gets one that no earlier run has."""

from __future__ import annotations

from pydantic import TypeAdapter

from hdpvfl_mq.app.run_name import run_name
from schemas.ids import RunId


def test_two_runs_proposed_in_one_second_have_two_names():
    """A whole training takes less than a second on a fast machine."""
    assert len({run_name("spring") for _ in range(20)}) > 1


def test_a_name_after_the_longest_federation_is_a_name_of_a_run():
    assert TypeAdapter(RunId).validate_python(run_name("f" * 64)).startswith("ffff")
