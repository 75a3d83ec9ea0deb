"""Of neighbouring rows, only noised values and keyed digests differ in what a party says.

Two federations with the same secrets run twice over the same ledgers; one cell of one party's rows
differs. Everything that party sent is compared field by field.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import pytest

from hdpvfl_mq.data.tables import Table
from hdpvfl_mq.journal.chain import walk
from hdpvfl_mq.wire.codec import decode_body, decode_header
from schemas.envelope import PROTOCOL_VERSION
from schemas.methods import PrivateModel
from schemas.records import EnvelopeSent
from tests.federation import Federation, manifest, tables

CELLS = {"feature of the passive party": ("shop", "shop_0"), "label": ("bank", "y")}
METHODS: dict[str, dict[str, Any]] = {
    "descent": {},
    "private model": {"method": PrivateModel(columns_max=8, held_out_rows=20)},
}
CASES = [(cell, method) for method in METHODS for cell in CELLS]
# What may depend on a cell: noised values, digests keyed by a secret of the party, their hashes.
NOISED = {"release.tensor.data", "release.tensor.dtype"}
SCALE = "release.scale"  # of scores: a function of the noised statistics
KEYED = {"dataset_fingerprint", "ledger.digest", "head.digest"}
OF_THESE = {
    "signature",  # of a ledger head
    "owner_signature",
    "signatures",  # under the end of a run: of the residuals that were released
    "residuals_digest",  # of noised values, and under a key that the coordinator does not know
    "header.head",
    "header.root",
    "header.parent",
    "header.to.seen",
}

# What depends on releases cannot differ before the first.
NOISY = {"signatures", "residuals_digest"}


def neighbour(party: str, column: str) -> dict[str, Table]:
    """The same tables but for one cell of a row that all parties have."""
    made = tables()
    table = made[party]
    columns = {name: np.array(table[name]) for name in table.names}
    columns[column][17] = 1.0 - columns[column][17]
    return {**made, party: Table.of(columns)}


def said(made: dict[str, Table], party: str, method: str) -> list[dict[str, Any]]:
    """What a party says in two runs, field by field."""
    runs = ("first-run", "second-run")
    settings = {"wire": PROTOCOL_VERSION, **METHODS[method]}
    first, second = (Federation(manifest(run=run, **settings), made) for run in runs)
    first.simulate()
    second.ledgers = first.ledgers
    second.simulate()
    assert {*first.outcomes.values(), *second.outcomes.values()} == {"completed"}
    return [
        dict(fields)
        for federation in (first, second)
        for record, _ in walk(federation.journals[party].records())
        for effect in record.effects
        if isinstance(effect, EnvelopeSent)
        for fields in [envelope(effect.frames)]
    ]


def envelope(frames: Any) -> Iterator[tuple[str, Any]]:
    header = decode_header(frames)
    yield from flat("header", header.model_dump())
    yield from flat("", decode_body(header, frames).model_dump())


def flat(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from flat(f"{path}.{name}" if path else name, inner)
    elif isinstance(value, tuple) and value and isinstance(value[0], dict):
        names = value[0]
        for name in names:
            yield f"{path}.{name}", tuple(inner[name] for inner in value)
    else:
        yield path, value


@cache
def pair(case: str, method: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    party, column = CELLS[case]
    return said(tables(), party, method), said(neighbour(party, column), party, method)


@pytest.mark.parametrize(("case", "method"), CASES)
def test_a_cell_decides_nothing_but_noised_values_and_keyed_digests(case: str, method: str) -> None:
    ours, theirs = pair(case, method)
    assert [m["kind"] for m in ours] == [m["kind"] for m in theirs]
    differing = {
        name
        for mine, other in zip(ours, theirs, strict=True)
        for name in mine | other
        if mine.get(name) != other.get(name)
    }
    assert differing <= NOISED | KEYED | OF_THESE | ({SCALE} if method != "descent" else set())
    assert differing >= KEYED | {"release.tensor.data"}  # the comparison sees what there is to see


@pytest.mark.parametrize(("case", "method"), CASES)
def test_before_its_first_release_only_keyed_digests_of_the_rows_differ(
    case: str, method: str
) -> None:
    """The ledger's head among them: the reserve names the rows by a keyed fingerprint."""
    ours, theirs = pair(case, method)
    first = next(i for i, m in enumerate(ours) if "release.release_id" in m)
    for mine, other in zip(ours[:first], theirs[:first], strict=True):
        differing = {name for name in mine if mine[name] != other[name]}
        assert differing <= {"dataset_fingerprint", "ledger.digest", *OF_THESE - NOISY}
