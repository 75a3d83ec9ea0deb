"""An epoch with a residual under CKKS (TenSEAL): `ckks_epoch.py ROWS COLUMNS`.

It owns the measurement and prints one line of JSON. One side encrypts the residual, the other
multiplies it with its columns; there is no network.
"""

from __future__ import annotations

import json
import sys
import time

import numpy as np
import tenseal as ts

SLOTS = 4096
rows, columns = int(sys.argv[1]), int(sys.argv[2])
X = np.random.default_rng(0).normal(size=(rows, columns))
residual = X[:, 0]
context = ts.context(ts.SCHEME_TYPE.CKKS, 2 * SLOTS, coeff_mod_bit_sizes=[60, 40, 40, 60])
context.global_scale = 2**40
context.generate_galois_keys()
began = time.perf_counter()
found = np.zeros(columns)
for start in range(0, rows, SLOTS):
    part = slice(start, start + SLOTS)
    hidden = ts.ckks_vector(context, residual[part].tolist())
    found += [hidden.dot(column[part].tolist()).decrypt()[0] for column in X.T]
wall_s = time.perf_counter() - began
assert np.allclose(found, X.T @ residual, rtol=1e-3, atol=1e-2)
print(json.dumps({"wall_s": wall_s}))
