"""Remember the results of curve arithmetic within a test process, and noise tables in a folder.

Federations of tests have fixed secrets, so hundreds of runs multiply the same points and sign the
same bytes. Each function here is pure: the same arguments give the same bytes or the same error. An
input is computed once, by the library itself; an error is not remembered. What was signed in this
process is known to verify under that key; any other bytes, signature or key go to the library.

All processes of a test run share the tables of the noise, which are functions of public values and
took a third of a party's processor time. `hdpvfl up` does the same with a warm parent.
"""

from __future__ import annotations

import atexit
import os
import pickle
import shutil
import tempfile
from collections.abc import Callable
from functools import lru_cache, wraps
from pathlib import Path
from typing import Any

import nacl.bindings

PURE = (
    "crypto_core_ed25519_add",
    "crypto_core_ed25519_sub",
    "crypto_scalarmult",
    "crypto_scalarmult_base",
    "crypto_scalarmult_ed25519_base_noclamp",
    "crypto_scalarmult_ed25519_noclamp",
)
REMEMBERED = 1 << 16  # results of each function: some 20 MB
PUBLIC_HALF = 32  # of a secret key: its public key follows the seed
TABLES = "HDPVFL_TEST_TABLES"  # the folder of the run's tables, for all its processes


def remember() -> None:
    """Call it before a module of the product is imported: they take these functions by name."""
    for name in PURE:
        found = getattr(nacl.bindings, name)
        if not hasattr(found, "cache_info"):
            setattr(nacl.bindings, name, lru_cache(REMEMBERED)(found))
    if not hasattr(nacl.bindings.crypto_sign, "cache_info"):
        _remember_signatures()
    from hdpvfl_mq.psi import curve  # noqa: PLC0415 - after the functions above

    if not hasattr(curve._on_curve, "cache_info"):
        curve._on_curve = lru_cache(REMEMBERED)(curve._on_curve)


def _remember_signatures() -> None:
    """Sign once, and verify what was signed here without the library."""
    sign, verify = nacl.bindings.crypto_sign, nacl.bindings.crypto_sign_open
    signed: dict[tuple[bytes, bytes], bytes] = {}

    @lru_cache(REMEMBERED)
    def crypto_sign(message: bytes, secret_key: bytes) -> bytes:
        found = sign(message, secret_key)
        if len(signed) >= REMEMBERED:
            signed.clear()
        signed[found, secret_key[PUBLIC_HALF:]] = message
        return found

    @lru_cache(REMEMBERED)
    def crypto_sign_open(found: bytes, public_key: bytes) -> bytes:
        message = signed.get((found, public_key))
        return verify(found, public_key) if message is None else message

    nacl.bindings.crypto_sign = crypto_sign
    nacl.bindings.crypto_sign_open = crypto_sign_open


def share_tables() -> None:
    """Let all processes of a test run compute each table of the noise once between them.

    An empty name of the folder forbids it: the sources may hold a planted fault.
    """
    if os.environ.get(TABLES) == "":
        return
    from hdpvfl_mq.privacy import table  # noqa: PLC0415 - not where only curves are remembered

    if TABLES not in os.environ:
        os.environ[TABLES] = tempfile.mkdtemp(prefix="tables-")
        atexit.register(shutil.rmtree, os.environ[TABLES], ignore_errors=True)
    if not hasattr(table._table, "__wrapped__"):
        table._table = shared_in(Path(os.environ[TABLES]), table._table)


def shared_in(folder: Path, compute: Callable[..., Any]) -> Callable[..., Any]:
    """The function that makes a table, or reads it where a process has made it."""

    @wraps(compute)
    def shared(std: float, cells: Callable[[float, int], list[Any]]) -> Any:
        path = folder / f"{cells.__name__}-{std.hex()}"
        if path.exists():
            return pickle.loads(path.read_bytes())
        made = compute(std, cells)
        if folder.exists():  # a process may outlive the run
            written = path.with_suffix(f".{os.getpid()}")
            written.write_bytes(pickle.dumps(made))
            written.replace(path)
        return made

    return shared
