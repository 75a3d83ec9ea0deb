"""The form of entity resolution without proofs, which benchmarks compare with: it really runs."""

from __future__ import annotations

from hdpvfl_mq.psi.ot_oprf import OtLengths
from scripts.benches.psi_sessions import measure
from scripts.benches.semi_honest import without_proofs


def test_sessions_without_proofs_find_the_same_and_send_less():
    proved = OtLengths().query_bytes(3000)
    with without_proofs():
        bare = OtLengths().query_bytes(3000)
        measure("oprf", parties=2, ids=3000)  # fails unless half of the ids are found
    assert 20_000 < proved - bare < 30_000
    assert OtLengths().query_bytes(3000) == proved
