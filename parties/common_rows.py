"""A party's rows in the order all parties share: block, labels, and their places in its file.

It owns how they follow from a state's setup. They are kept in the party's memo, so that no state
holds or allocates an array with an entry for every row.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hdpvfl_mq.arrays.chunked import Positions, gather, marked, marks
from hdpvfl_mq.arrays.packed_marks import pack_marks, unpack_marks
from hdpvfl_mq.arrays.unreleased import FloatVector
from hdpvfl_mq.glm.block import ColumnBlock
from hdpvfl_mq.glm.response import Response
from hdpvfl_mq.psi import PackedIds, row_order
from parties.assets import Assets
from parties.phases import Setup
from schemas.config import RunManifest


@dataclass(frozen=True)
class CommonRows:
    """The common rows of a run; `order` is their places in the party's file."""

    order: NDArray[np.int64] = field(repr=False)
    block: ColumnBlock = field(repr=False)


def packed_positions(own: Assets, positions: NDArray[np.integer[Any]]) -> bytes:
    """Which of this party's ids are common, one bit each: small enough for a state."""
    mask = marks(len(own.ids.ids), own.allocate)
    mask[np.asarray(positions)] = True
    return pack_marks(mask)


def in_shared_order(
    own: Assets, manifest: RunManifest, common: NDArray[np.integer[Any]]
) -> tuple[PackedIds, NDArray[np.int64]]:
    """The common ids in the order all parties share, and this party's rows in that order."""
    positions = _ordered(own, manifest, common)
    return own.ids.ids.chosen(positions, own.allocate), gather(
        own.ids.rows, positions, own.allocate
    )


def _ordered(
    own: Assets, manifest: RunManifest, common: NDArray[np.integer[Any]]
) -> NDArray[np.integer[Any]]:
    """The positions of the common ids in the order all parties share.

    This takes seconds for a million ids, and both the agreement and the first round need it, so
    it is cached.
    """
    seed = hashlib.sha256(b"order" + manifest.seed.to_bytes(8, "big")).digest()

    def ordered() -> NDArray[np.integer[Any]]:
        ids = own.ids.ids.chosen(common, own.allocate)
        order = row_order(ids, seed, own.allocate, own.engine)
        return gather(common, order, own.allocate)

    which = hashlib.sha256(packed_positions(own, common)).digest()
    return own.memo.once("order", (seed, which), ordered)


def rows_of(own: Assets, setup: Setup) -> CommonRows:
    """The common rows of a run."""
    return own.memo.once("rows", setup.key, lambda: _rows(own, setup))


def _rows(own: Assets, setup: Setup) -> CommonRows:
    manifest = setup.plan.manifest
    common: Positions = marked(unpack_marks(setup.common, len(own.ids.ids)), own.allocate)
    _, order = in_shared_order(own, manifest, common)
    block = ColumnBlock.align(
        own.data.X,
        order,
        intercept=own.role == "active" and manifest.intercept,
        scaled=is_scaled(own, manifest),
        allocate=own.allocate,
        engine=own.engine,
    )
    return CommonRows(order, block)


def is_scaled(own: Assets, manifest: RunManifest) -> bool:
    """Whether rows are scaled to norm at most 1; columns that enter no release need not be."""
    method = manifest.method if own.model is None else own.model.manifest.method
    if own.role == "active" and not method.active_rows_scaled:
        return False
    return manifest.guarantee != "none" or manifest.scale_rows


def people_at(own: Assets, setup: Setup, places: NDArray[np.int64]) -> list[bytes]:
    """The ids of the people at these places in the common order.

    A person has one id here, whatever key they were matched by: limits for a person count by it.
    """

    def ordered() -> PackedIds:
        common: Positions = marked(unpack_marks(setup.common, len(own.ids.ids)), own.allocate)
        positions = _ordered(own, setup.plan.manifest, common)
        return own.ids.of_people(positions, own.allocate)

    return own.memo.once("people", setup.key, ordered).at(places)


def block_of(own: Assets, setup: Setup) -> ColumnBlock:
    """The columns of the common rows."""
    return rows_of(own, setup).block


def start_weights(own: Assets, setup: Setup) -> FloatVector:
    """Public weights before the first round; the loss says where an intercept starts."""
    block = block_of(own, setup)
    return block.start_weights(setup.plan.family.start_theta if block.intercept else 0.0)


def response_of(own: Assets, setup: Setup) -> Response:
    """Labels, weights and offsets of the common rows; only the active party has them."""
    return own.memo.once("response", setup.key, lambda: _response(own, setup))


def _response(own: Assets, setup: Setup) -> Response:
    assert own.data.y is not None
    return Response(
        setup.plan.family,
        own.data.y,
        weights=own.data.weights,
        offset=own.data.offset,
        order=rows_of(own, setup).order,
        allocate=own.allocate,
    )
