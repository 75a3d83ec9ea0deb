"""An epoch of FATE's hetero logistic regression: `fate_epoch.py ROWS GUEST HOST BATCH CIPHER`.

It owns the measurement and prints one line of JSON. Guest, host and arbiter are processes of one
machine (FATE's launcher and standalone backend), which pass messages through files. CIPHER is
paillier (2048 bits) or mock, which is plain text. The time is that of the guest's fit: keys, labels
and one epoch, without imports and rows.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from fate.arch import dataframe
from fate.arch.config import cfg
from fate.arch.launchers.multiprocess_launcher import launch
from fate.arch.unify import device
from fate.ml.glm.hetero.coordinated_lr import (
    CoordinatedLRModuleArbiter,
    CoordinatedLRModuleGuest,
    CoordinatedLRModuleHost,
)

ROWS, GUEST, HOST, BATCH = (int(each) for each in sys.argv[1:5])
CIPHER, BITS = sys.argv[5], 2048
PARTIES = ("guest:9999", "host:10000", "arbiter:10001")
FOUND = Path("found.json")
FIT = {
    "epochs": 1,
    "batch_size": BATCH,
    "optimizer_param": {
        "method": "sgd",
        "penalty": "l2",
        "alpha": 0.0,
        "optimizer_params": {"lr": 0.1},
    },
    "learning_rate_param": {"method": "constant", "scheduler_params": {"factor": 1.0}},
}
START = {"method": "zeros", "fit_intercept": True, "random_state": 1}


def frame(ctx: Any, columns: int, label: dict[str, Any]) -> Any:
    """The rows of one party."""
    dice = np.random.default_rng(columns)
    ids = [f"{place:08d}" for place in range(ROWS)]
    cells = {f"x{place}": dice.normal(size=ROWS) for place in range(columns)}
    table = pd.DataFrame({"sample": ids, "id": ids, **label, **cells})
    reader = dataframe.PandasReader(
        sample_id_name="sample", match_id_name="id", label_name="y" if label else None
    )
    return reader.to_frame(ctx, table)


def run(ctx: Any) -> None:
    """What one of the three processes does."""
    cfg.safety.phe.mock.allow = True
    ctx.cipher.set_phe(device.CPU, {"kind": CIPHER, "key_length": BITS})
    if ctx.is_on_arbiter:
        CoordinatedLRModuleArbiter(**FIT, early_stop="weight_diff", tol=1e-9).fit(ctx)
    elif ctx.is_on_host:
        rows = frame(ctx, HOST, {})
        CoordinatedLRModuleHost(**FIT, init_param=dict(START)).fit(ctx, rows)
    else:
        rows = frame(ctx, GUEST, {"y": np.random.default_rng(0).integers(0, 2, ROWS)})
        model = CoordinatedLRModuleGuest(**FIT, init_param=dict(START))
        began = time.perf_counter()
        model.fit(ctx, rows)
        wall_s = time.perf_counter() - began
        weights = model.estimator.w.detach().numpy()
        assert weights.size == GUEST + 1
        assert np.isfinite(weights).all()
        assert weights.any()
        FOUND.write_text(json.dumps({"wall_s": wall_s}))


if __name__ == "__main__":
    # The launcher reads its options here, and hands the command line on to its processes.
    sys.argv += ["--parties", *PARTIES, "--data_dir", str(Path("data").absolute())]
    sys.argv += ["--log_level", "ERROR"]
    try:
        launch(run)
    except SystemExit as ended:
        if ended.code:
            raise
    print(FOUND.read_text(), flush=True)
