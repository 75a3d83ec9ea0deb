"""An epoch with a residual under Paillier (phe, 2048 bits): `paillier_epoch.py ROWS COLUMNS`.

It owns the measurement and prints one line of JSON. One side encrypts the residual, the other
multiplies it with its columns; there is no network.
"""

from __future__ import annotations

import json
import sys
import time

import numpy as np
from phe import paillier

rows, columns = int(sys.argv[1]), int(sys.argv[2])
X = np.random.default_rng(0).normal(size=(rows, columns))
residual = X[:, 0]
public, private = paillier.generate_paillier_keypair(n_length=2048)
began = time.perf_counter()
hidden = [public.encrypt(float(value)) for value in residual]
found = [
    private.decrypt(sum(h * float(x) for h, x in zip(hidden, column, strict=True)))
    for column in X.T
]
wall_s = time.perf_counter() - began
assert np.allclose(found, X.T @ residual)
print(json.dumps({"wall_s": wall_s}))
