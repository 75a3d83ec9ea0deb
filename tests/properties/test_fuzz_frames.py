"""64,000 frames with valid signatures: every one is a legal move or a refusal, never an error.

`make fuzz` throws 20 million.
"""

from __future__ import annotations

import pytest

from tests.properties.fuzz_frames import throw

FRAMES, BLOCKS = 64_000, 16  # a block meets one method in one version of the protocol
SIGNED = 2  # blocks with Ed25519; the others have keyed hashes, as nine of ten in make fuzz


@pytest.mark.parametrize("seed", range(BLOCKS))
def test_signed_frames_break_no_node(seed):
    counted = throw(FRAMES // BLOCKS, seed, hashes=seed >= SIGNED)
    assert counted["thrown"] == FRAMES // BLOCKS
    # Most reach the roles, not only the door, and find them in the middle of the run.
    assert counted["taken"] > counted["thrown"] // 2
    assert counted["ending"] < counted["thrown"] // 2


def test_hashes_in_the_place_of_signatures_change_nothing_else():
    assert throw(2_000, seed=3, hashes=True) == throw(2_000, seed=3)
