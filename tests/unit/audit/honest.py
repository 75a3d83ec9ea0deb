"""An honest run as evidence, and runs of federations that cheat."""

from __future__ import annotations

from functools import cache

from hdpvfl_mq.audit.evidence import Evidence
from tests.evidence import CheatingFederation, evidence_of
from tests.federation import Federation, manifest, tables

SMALL = {"batch_rows": 20, "epochs": 2}
ROWS = 44


@cache
def honest_federation() -> Federation:
    federation = Federation(manifest(**SMALL), tables(ROWS))
    federation.simulate()
    return federation


def honest() -> Evidence:
    return evidence_of(honest_federation())


def cheating(*, restart: str | None = None, **cheats) -> Evidence:
    federation = CheatingFederation(manifest(**SMALL), tables(ROWS), cheats=cheats)
    federation.simulate()
    if restart is not None:
        node = federation.node(restart)
        node.open()
        node.start()
    return evidence_of(federation, ledgers=False)


def records(evidence: Evidence, party: str):
    return list(evidence.transcripts[party].records)
