"""An epoch of logistic regression under SPU's secret sharing: `spu_epoch.py ROWS COLUMNS BATCH`.

It owns the measurement and prints one line of JSON with the median seconds for each protocol. All
parties are threads of one process (SPU's simulator); results are exact up to fixed point.
"""

from __future__ import annotations

import json
import sys
import time
from statistics import median

import jax.numpy as jnp
import numpy as np
from spu import libspu
from spu.utils import simulation

PARTIES = {"SEMI2K": 2, "ABY3": 3}
TURNS, STEP = 3, 0.1


def main() -> None:
    """Measure every protocol on the same rows."""
    rows, columns, batch = (int(each) for each in sys.argv[1:4])
    dice = np.random.default_rng(0)
    X = dice.normal(size=(rows, columns)).astype(np.float32)
    y = (dice.random(rows) > 0.5).astype(np.float32)
    start = np.zeros(columns, np.float32)

    def epoch(X: jnp.ndarray, y: jnp.ndarray, w: jnp.ndarray) -> jnp.ndarray:
        for first in range(0, rows, batch):
            part, labels = X[first : first + batch], y[first : first + batch]
            residual = 1 / (1 + jnp.exp(-(part @ w))) - labels
            w = w - STEP * (part.T @ residual) / len(part)
        return w

    plain, found = np.asarray(epoch(X, y, start)), {}
    for name, parties in PARTIES.items():
        kind = getattr(libspu.ProtocolKind, name)
        machine = simulation.Simulator.simple(parties, kind, libspu.FieldType.FM64)
        secret, taken = simulation.sim_jax(machine, epoch), []
        for _ in range(TURNS + 1):  # the first one compiles
            began = time.perf_counter()
            w = secret(X, y, start)
            taken.append(time.perf_counter() - began)
        assert np.allclose(w, plain, atol=1e-2)
        found[name] = median(taken[1:])
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
