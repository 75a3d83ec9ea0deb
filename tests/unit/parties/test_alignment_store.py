"""Alignments on disk: for their owner only, as first seen by a run, whole or refused."""

from __future__ import annotations

import os
import stat

import numpy as np
import pytest

from hdpvfl_mq.errors import IntegrityError, OperatorError
from hdpvfl_mq.wire.canonical import pack
from parties.process.alignment_store import AlignmentStore, found, usable
from schemas.alignment import KeptAlignment
from schemas.tensor import Tensor

IDS, RULES = b"r" * 32, b"i" * 32


def alignment(key: int = 1, parties=("bank", "shop"), ids_digest=IDS) -> KeptAlignment:
    return KeptAlignment(
        ids_digest=ids_digest,
        parties=parties,
        id_profile_digest=RULES,
        shared_key=bytes([key]) * 32,
        positions=Tensor.smallest(np.arange(5)),
    )


def keep(folder, kept: KeptAlignment, at: int = 0):
    before = set(folder.glob("*.alignment"))
    AlignmentStore(folder, "test-run").keep(kept)
    (path,) = set(folder.glob("*.alignment")) - before
    os.utime(path, (at, at))
    return path


def test_it_comes_back_for_the_same_ids_and_rules_only(tmp_path):
    keep(tmp_path, alignment())
    assert usable(tmp_path, "run-1", IDS, RULES) == (alignment(),)
    assert usable(tmp_path, "run-2", b"o" * 32, RULES) == ()
    assert usable(tmp_path, "run-3", IDS, b"o" * 32) == ()


def test_an_alignment_too_large_to_keep_leaves_nothing(tmp_path):
    alignments = AlignmentStore(tmp_path, "test-run")
    alignments.keep(None)
    assert not list(tmp_path.glob("*"))
    alignments.keep(alignment())
    assert len(list(tmp_path.glob("*.alignment"))) == 1
    assert found(tmp_path, "test-run") == alignment()
    assert found(tmp_path, "another-run") is None


def test_only_the_owner_can_read_it(tmp_path):
    path = keep(tmp_path / "new", alignment())
    usable(path.parent, "run-1", IDS, RULES)
    assert {stat.S_IMODE(each.stat().st_mode) for each in path.parent.iterdir()} == {0o600}


def test_the_newest_counts_for_each_set_of_parties(tmp_path):
    keep(tmp_path, alignment(1), at=20)
    keep(tmp_path, alignment(2), at=10)
    keep(tmp_path, alignment(3, parties=("bank", "shop", "telco")), at=5)
    found = {kept.parties: kept for kept in usable(tmp_path, "run-1", IDS, RULES)}
    assert found[("bank", "shop")] == alignment(1)
    assert len(found) == 2


def test_a_run_sees_for_ever_what_it_saw_first(tmp_path):
    assert usable(tmp_path, "run-1", IDS, RULES) == ()
    keep(tmp_path, alignment(1), at=10)
    assert usable(tmp_path, "run-2", IDS, RULES) == (alignment(1),)
    keep(tmp_path, alignment(2), at=20)
    assert usable(tmp_path, "run-1", IDS, RULES) == ()
    assert usable(tmp_path, "run-2", IDS, RULES) == (alignment(1),)
    assert usable(tmp_path, "run-3", IDS, RULES) == (alignment(2),)


def test_a_lost_file_stops_the_run_that_relies_on_it(tmp_path):
    path = keep(tmp_path, alignment())
    usable(tmp_path, "run-1", IDS, RULES)
    path.unlink()
    with pytest.raises(OperatorError, match="put the file back"):
        usable(tmp_path, "run-1", IDS, RULES)
    assert usable(tmp_path, "run-2", IDS, RULES) == ()


@pytest.mark.parametrize("harm", ["cut", "renamed", "key"])
def test_a_damaged_file_is_refused(tmp_path, harm):
    path = keep(tmp_path, alignment())
    if harm == "renamed":
        path.rename(path.with_name(path.name.replace(path.name[-42:-10], "0" * 32)))
    else:
        stored = path.read_bytes()
        path.write_bytes(stored[:-9] if harm == "cut" else stored.replace(b"\1" * 32, b"\2" * 32))
    with pytest.raises(IntegrityError, match="damaged"):
        usable(tmp_path, "run-1", IDS, RULES)


def test_its_name_does_not_show_the_key_and_its_text_shows_neither():
    kept = alignment(7)
    assert kept.shared_key not in kept.name
    assert repr(kept.shared_key)[2:-1] not in repr(kept)


def test_a_run_goes_on_with_an_alignment_of_format_1(tmp_path):
    path = keep(tmp_path, alignment())
    usable(tmp_path, "run-1", IDS, RULES)
    fields = alignment().model_dump()
    fields["fingerprint"] = fields.pop("ids_digest")
    path.write_bytes(pack({**fields, "format": 1}))
    assert usable(tmp_path, "run-1", IDS, RULES) == (alignment(),)
    assert found(tmp_path, "test-run") == alignment()
