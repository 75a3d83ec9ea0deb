"""Fixtures that unit tests share."""

from __future__ import annotations

import pytest

from tests.unit.node.node_bench import new_bench


@pytest.fixture
def bench():
    """A node that has started, and its log."""
    return new_bench()
