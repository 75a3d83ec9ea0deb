"""Whether a party names a kept alignment follows from its ids, never from another cell."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from hdpvfl_mq.psi import rules_digest
from hdpvfl_mq.runtime.keys import load_keys
from hdpvfl_mq.runtime.settings import load_settings
from parties.assets import Assets, ids_digest
from parties.process.alignment_store import AlignmentStore
from parties.process.build import PartyFiles, load_assets
from schemas.alignment import KeptAlignment
from schemas.config import PartySettings
from schemas.tensor import Tensor
from tests.integration.processes import Processes, processes

PARTY = "passive-1"


@pytest.fixture
def demo(tmp_path: Path):
    with processes(tmp_path) as written:
        yield written


def assets(demo: Processes, run: str) -> tuple[PartySettings, Assets]:
    demo.change(PARTY, run=run)
    settings = load_settings(PartySettings, demo.demo.settings(PARTY))
    return settings, load_assets(settings, load_keys(Path(settings.keys)))


def keep_one(demo: Processes) -> KeptAlignment:
    """As a first run leaves it."""
    settings, own = assets(demo, "first-run")
    kept = KeptAlignment(
        ids_digest=ids_digest(own.ids),
        parties=tuple(sorted(demo.demo.parties)),
        id_profile_digest=rules_digest(own.id_rules),
        shared_key=bytes(32),
        positions=Tensor.smallest(np.arange(200)),
    )
    AlignmentStore(PartyFiles(settings).alignments, "first-run").keep(kept)
    return kept


def change_cell(demo: Processes, column: int, value: str) -> None:
    path = demo.demo.rows(PARTY, "train")
    with path.open(newline="") as file:
        table = list(csv.reader(file))
    assert table[4][column] != value
    table[4][column] = value
    with path.open("w", newline="") as file:
        csv.writer(file).writerows(table)


def test_another_cell_leaves_the_kept_alignment_and_another_id_does_not(demo: Processes) -> None:
    kept = keep_one(demo)
    change_cell(demo, 1, "0.123")
    _, changed = assets(demo, "second-run")
    assert changed.kept_for(demo.demo.manifest) == kept
    change_cell(demo, 0, "999999")
    _, other = assets(demo, "third-run")
    assert other.kept_for(demo.demo.manifest) is None
