"""The common order of a run is computed once by each party."""

from __future__ import annotations

from hdpvfl_mq.psi import row_order
from parties import common_rows
from schemas.methods import PrivateModel
from tests.federation import Federation, manifest


def test_each_party_sorts_its_common_ids_once(monkeypatch):
    sorted_ids = []

    def noted(ids, *others):
        sorted_ids.append(len(ids))
        return row_order(ids, *others)

    monkeypatch.setattr(common_rows, "row_order", noted)
    federation = Federation(manifest(method=PrivateModel()))
    federation.simulate()
    assert len(set(sorted_ids)) == 1
    assert len(sorted_ids) == len(federation.manifest.parties)  # for the terms and for the rows
