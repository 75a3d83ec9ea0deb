"""Remember the results of curve arithmetic within a test process.

Federations of tests have fixed secrets, so hundreds of runs multiply the same points and sign the
same bytes. Each function here is pure: the same arguments give the same bytes or the same error. An
input is computed once, by the library itself; an error is not remembered.
"""

from __future__ import annotations

from functools import lru_cache

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
