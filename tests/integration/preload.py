"""What the fork server imports once, so that its children need not: services and commands."""

from __future__ import annotations

import gc

import tests.integration.killing
import tests.integration.networks
import tests.integration.processes  # noqa: F401 - only imported

gc.freeze()  # else the first full collection of a child copies the memory of all modules
