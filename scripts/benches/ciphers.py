"""One epoch with encrypted residuals instead of noised ones: Paillier and CKKS, no network.

It owns the peers' environments (under build/, never the project's) and the small programs that run
in them: the active party encrypts the residual, a passive party multiplies it with its columns.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from scripts.benches.row import Row

ROOT = Path(__file__).parents[2]
ROWS, COLUMNS, SAMPLE = 10_000, 13, 200
_PHE = """
import json, time, numpy as np
from phe import paillier
X = np.random.default_rng(0).normal(size=(%d, %d)); r = X[:, 0]
public, private = paillier.generate_paillier_keypair(n_length=2048)
began = time.perf_counter()
hidden = [public.encrypt(float(v)) for v in r]
found = [private.decrypt(sum(h * float(x) for h, x in zip(hidden, column))) for column in X.T]
taken = time.perf_counter() - began
assert np.allclose(found, X.T @ r)
print(json.dumps(taken))
"""
_TENSEAL = """
import json, time, numpy as np, tenseal as ts
X = np.random.default_rng(0).normal(size=(%d, %d)); r = X[:, 0]
context = ts.context(ts.SCHEME_TYPE.CKKS, 8192, coeff_mod_bit_sizes=[60, 40, 40, 60])
context.global_scale = 2**40
context.generate_galois_keys()
began = time.perf_counter()
found = np.zeros(X.shape[1])
for start in range(0, len(r), 4096):
    part = slice(start, start + 4096)
    hidden = ts.ckks_vector(context, r[part].tolist())
    found += [hidden.dot(column[part].tolist()).decrypt()[0] for column in X.T]
taken = time.perf_counter() - began
assert np.allclose(found, X.T @ r, rtol=1e-3, atol=1e-2)
print(json.dumps(taken))
"""
# name -> packages, program, rows that are measured; the time grows linearly with rows
PEERS = {
    "phe, Paillier 2048": (("phe==1.5.0", "numpy"), _PHE, SAMPLE),
    "TenSEAL, CKKS": (("tenseal==0.3.16", "numpy"), _TENSEAL, ROWS),
}


def ciphers() -> list[Row]:
    """Seconds of an epoch for every peer that installs here; the reason for every other."""
    return [_peer(name, *each) for name, each in PEERS.items()]


def _peer(name: str, packages: tuple[str, ...], program: str, rows: int) -> Row:
    what = f"an epoch, {ROWS:,} x {COLUMNS} encrypted: {name}"
    python = peer_python(packages)
    if isinstance(python, str):
        return Row(what, "", f"skipped: {python}")
    done = subprocess.run(
        [python, "-c", program % (rows, COLUMNS)], capture_output=True, text=True, check=False
    )
    if done.returncode:
        return Row(what, "", f"failed: {done.stderr.strip()[-80:]}")
    taken_s = json.loads(done.stdout) * ROWS / rows
    note = "" if rows == ROWS else f", from {rows} rows"
    key = f"peer.{name.partition(',')[0]}"
    return Row(what, "", f"{taken_s:.2f} s{note}", key=key, value=taken_s)


def peer_python(packages: tuple[str, ...]) -> Path | str:
    """The interpreter of an environment with these packages, or why there is none."""
    folder = ROOT / "build" / "peers" / packages[0].replace("==", "-")
    python = folder / "bin" / "python"
    if not (folder / "ready").exists():
        pip = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", *packages]
        for command in ([sys.executable, "-m", "venv", str(folder)], pip):
            try:
                done = subprocess.run(
                    command, capture_output=True, text=True, check=False, timeout=300
                )
            except subprocess.TimeoutExpired:
                return "installing took more than five minutes"
            if done.returncode:
                return (done.stderr.strip().splitlines() or ["it does not install"])[-1][:120]
        (folder / "ready").touch()
    return python
