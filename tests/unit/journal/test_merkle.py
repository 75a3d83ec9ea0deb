"""Trees against the definition of RFC 9162."""

from __future__ import annotations

import hashlib

import pytest

from hdpvfl_mq.journal.merkle import EMPTY, Tree

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
    tree = Tree()
    for entry in LEAVES[:size]:
        tree.append(entry)
    assert tree.root().hex() == ROOTS[size]


def test_the_growing_tree_is_the_definition_at_every_size():
    leaves, tree = [], Tree()
    for number in range(70):
        assert tree.root() == definition(leaves)
        leaves.append(hashlib.sha256(bytes([number])).digest())
        tree.append(leaves[-1])
