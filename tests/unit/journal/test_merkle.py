"""Trees against the definition of RFC 9162, and the proof that one message is in a journal."""

from __future__ import annotations

import hashlib

import pytest

from hdpvfl_mq.journal.merkle import EMPTY, Tree, inclusion_path, root_from_path, root_of
from tests.unit.audit.honest import honest

# The tree of the Certificate Transparency test vectors.
LEAVES = [bytes.fromhex(x) for x in ("", "00", "10", "2021", "3031", "40414243")]
LEAVES += [bytes.fromhex("5051525354555657"), bytes.fromhex("606162636465666768696a6b6c6d6e6f")]
ROOTS = {
    1: "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    2: "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    3: "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    7: "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    8: "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
}


def definition(leaves: list[bytes]) -> bytes:
    if not leaves:
        return EMPTY
    if len(leaves) == 1:
        return hashlib.sha256(b"\x00" + leaves[0]).digest()
    split = 1
    while split * 2 < len(leaves):
        split *= 2
    pair = definition(leaves[:split]) + definition(leaves[split:])
    return hashlib.sha256(b"\x01" + pair).digest()


@pytest.mark.parametrize("size", ROOTS)
def test_the_published_roots(size):
    assert root_of(LEAVES[:size]).hex() == ROOTS[size]


def test_the_growing_tree_is_the_definition_at_every_size():
    leaves, tree = [], Tree()
    for number in range(70):
        assert tree.root() == definition(leaves)
        leaves.append(hashlib.sha256(bytes([number])).digest())
        tree.append(leaves[-1])


@pytest.mark.parametrize("size", [1, 2, 3, 7, 8, 33])
def test_every_inclusion_proof_holds_and_no_other(size):
    leaves = [hashlib.sha256(bytes([n])).digest() for n in range(size)]
    root = root_of(leaves)
    for index in range(size):
        path = inclusion_path(leaves, index)
        assert root_from_path(leaves[index], index, size, path) == root
        assert root_from_path(bytes(32), index, size, path) != root
        assert root_from_path(leaves[index], index + 1, size, path) != root
        assert root_from_path(leaves[index], index, size, (*path, bytes(32))) != root
        if path:
            assert root_from_path(leaves[index], index, size, path[:-1]) != root


def test_one_message_is_proved_to_be_in_a_journal_a_peer_has_witnessed():
    """Shown: one record, a path, and an envelope that somebody else received and kept."""
    evidence = honest()
    shop = evidence.transcripts["shop"]
    digests = [digest for _, _, digest in shop.rows]
    witnessed = [e for e in evidence.transcripts["bank"].received() if e.header.sender == "shop"]
    header = witnessed[-1].header
    share = next(e for e in shop.sent() if e.header.kind == "score_share")
    path = inclusion_path(digests[: header.size], share.place.index)
    record = shop.rows[share.place.index]
    assert root_from_path(record[2], share.place.index, header.size, path) == header.root
    assert share.frames[2] in record[1]
