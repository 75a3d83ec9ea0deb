"""What the fork server makes once, so that its children need not: modules and noise tables."""

from __future__ import annotations

import gc
from importlib import import_module

from tests.memo import share_tables

# Services, and what services and commands import when they need it.
for name in (
    "tests.integration.killing",
    "tests.integration.networks",
    "tests.integration.processes",
    "hdpvfl_mq.app.commands.join",
    "hdpvfl_mq.app.commands.ledger",
    "hdpvfl_mq.app.commands.services",
    "hdpvfl_mq.app.demo.summary",
    "hdpvfl_mq.app.refold",
    "dateutil.relativedelta",  # this and the next two: Arrow's reader
    "encodings.utf_8_sig",
    "numpy.ma",
    "parties.process.commands",
    "pyarrow._compute",
):
    import_module(name)
share_tables()

gc.freeze()  # else the first full collection of a child copies the memory of all modules
