"""One passive or active party of the private model, driven by `step`, with noise removed.

It owns how rows, a neighbour and received values become releases before noise; the roles and the
mechanism are those of production. Every release is conditioned on the earlier ones: the adversary
may replace statistics by any others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any
from unittest import mock

import numpy as np

from hdpvfl_mq.machine import Received
from hdpvfl_mq.methods import plan_run
from hdpvfl_mq.privacy import mechanism as mechanism_module
from parties.alignment import make_setup
from parties.common_rows import rows_of
from parties.party import Party
from parties.phases import Training
from parties.rounds import private_model
from schemas.envelope import PROTOCOL_VERSION
from schemas.messages import Residual
from schemas.methods import PrivateModel
from schemas.privacy import LedgerHead, Release, SpendEvent
from schemas.records import LedgerStanding
from schemas.tensor import Tensor
from tests.federation import Federation, manifest, tables

Array = np.ndarray
ROWS, COLUMNS = 12, 3
STANDING = LedgerStanding(head=LedgerHead(sequence=0, digest=bytes(32)), mu2_units_free=10**18)


@dataclass
class Passive:
    """A passive party over ROWS rows, ready for the labels."""

    method: PrivateModel = field(default_factory=lambda: PrivateModel(columns_max=COLUMNS))

    def __post_init__(self) -> None:
        self.federation = Federation(
            manifest(method=self.method, wire=PROTOCOL_VERSION), tables(ROWS + 3)
        )
        self.plan = plan_run(self.federation.manifest, ROWS)
        self.own = self.federation.assets("shop")

    def releases(
        self, X: Array, received: Array, *, given: Mapping[str, Array] | None = None
    ) -> dict[str, Array]:
        """Everything this party releases about rows X, before noise, in numbers.

        `given` stands for what was released earlier, noise included: later releases depend on it
        instead of on the rows.
        """
        padded = np.zeros((len(self.own.ids.ids), COLUMNS))
        own = replace(self.own, data=replace(self.own.data, X=padded))
        setup = make_setup(own, self.plan, np.arange(ROWS), None)
        order = rows_of(own, setup).order
        padded[order] = X
        own.memo.forget()
        state = Training(
            standing=STANDING,
            setup=setup,
            rounds=private_model.start_passive(own, setup),
            planned=1,
            orders=(bytes(32),),
        )
        with without_noise(given or {}) as seen:
            Party(own).step(state, Received("bank", Residual(round=0, release=labels(received))))
        return dict(seen)


def labels(received: Array) -> Release:
    """What the active party sends, whoever it is: any integers."""
    release_id = "test-run/bank/residual/0"
    event = SpendEvent(
        release_id=release_id, round=0, mechanism="lattice_gaussian", mu2_units=1, tau_units=1
    )
    return Release(
        release_id=release_id,
        tensor=Tensor.of(np.rint(np.clip(received, -100.0, 100.0) * 2.0**9).astype(np.int64)),
        exponent=-9,
        noise_std=1.0,
        event=event,
    )


@contextmanager
def without_noise(given: Mapping[str, Array]) -> Iterator[dict[str, Array]]:
    """Note what reaches the sampler, by kind, and let through what is given instead."""
    seen: dict[str, Array] = {}
    order = ["moments", "gram", "share"]

    def noised(lattice: Array, plan: Any, key: bytes, engine: object) -> Array:
        kind = order[len(seen)]
        grid = 2.0**plan.exponent
        seen[kind] = lattice * grid
        return np.rint(given[kind] / grid).astype(np.int64) if kind in given else lattice

    with mock.patch.object(mechanism_module, "_noised", noised):
        yield seen


def frobenius(first: Array, second: Array) -> float:
    """Distance of two packed symmetric matrices: what is off the diagonal counts twice."""
    apart = (first - second) ** 2
    return float(np.sqrt(apart[:COLUMNS].sum() + 2.0 * apart[COLUMNS:].sum()))


def euclid(first: Array, second: Array) -> float:
    return float(np.linalg.norm(first - second))


DISTANCE = {"moments": euclid, "gram": frobenius, "share": euclid}
