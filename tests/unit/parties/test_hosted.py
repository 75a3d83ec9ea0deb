"""A run in a party's process: what its operator is told of its end."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from parties.process.hosted import PartyRun


@pytest.mark.parametrize(
    ("refusal", "told"),
    [("", "it was stopped"), ("policy.x is 3", "it was stopped: policy.x is 3")],
)
def test_a_refused_reserve_explains_itself(refusal, told):
    run = object.__new__(PartyRun)
    run.node = SimpleNamespace(state=SimpleNamespace(reason="it was stopped"))
    run._book = SimpleNamespace(refusal=refusal)
    assert run.reason == told
