"""Remember the results of curve arithmetic within a test process, and noise tables in a folder.

Federations of tests have fixed secrets, so hundreds of runs multiply the same points and sign the
same bytes. Each function here is pure: the same arguments give the same bytes or the same error. An
input is computed once, by the library itself; an error is not remembered.

Processes that the fork server starts share the tables of the noise, which are functions of public
values and took a third of a party's processor time. `hdpvfl up` does the same with a warm parent.
"""

from __future__ import annotations

import atexit
import os
import pickle
import shutil
import tempfile
from collections.abc import Callable
from functools import lru_cache
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
    "crypto_sign",
    "crypto_sign_open",
)
REMEMBERED = 1 << 16  # results of each function: some 20 MB


def remember() -> None:
    """Call it before a module of the product is imported: they take these functions by name."""
    for name in PURE:
        found = getattr(nacl.bindings, name)
        if not hasattr(found, "cache_info"):
            setattr(nacl.bindings, name, lru_cache(REMEMBERED)(found))
    from hdpvfl_mq.psi import curve  # noqa: PLC0415 - after the functions above

    if not hasattr(curve._on_curve, "cache_info"):
        curve._on_curve = lru_cache(REMEMBERED)(curve._on_curve)


def share_tables() -> None:
    """Let this process and those it forks compute each table of the noise once between them."""
    from hdpvfl_mq.privacy import table  # noqa: PLC0415 - not where only curves are remembered

    folder = Path(tempfile.mkdtemp(prefix="tables-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    compute = table._table

    def shared(std: float, cells: Callable[[float, int], list[Any]]) -> table.AliasTable:
        path = folder / f"{cells.__name__}-{std.hex()}"
        if path.exists():
            found: table.AliasTable = pickle.loads(path.read_bytes())
            return found
        made = compute(std, cells)
        if folder.exists():  # a process may outlive the server
            written = path.with_suffix(f".{os.getpid()}")
            written.write_bytes(pickle.dumps(made))
            written.replace(path)
        return made

    table._table = shared
