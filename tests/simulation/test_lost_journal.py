"""A process whose journal is lost, or put back from an earlier time: all know within seconds."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from hdpvfl_mq.journal.store import Journal
from hdpvfl_mq.runtime.simulation import Faults
from schemas.ids import COORDINATOR
from tests.federation import Federation, manifest, tables

PARTIES = (COORDINATOR, "bank", "shop", "telco")
GONE_S, BACK_S, DELAY_S = 1.0, 0.5, 0.02
SECONDS = 40.0  # two timers of 5 s, and copies that are sent more and more slowly


@dataclass
class Forgetful(Federation):
    """One process finds another journal when it starts again."""

    victim: str = ""
    share: float = 0.0  # of its records
    starts: list[str] = field(default_factory=list)

    def node(self, party):
        if party == self.victim and party in self.starts:
            self.forget()
        self.starts.append(party)
        return super().node(party)

    def forget(self) -> None:
        rows = list(self.journals[self.victim].records())
        fresh = Journal(":memory:", run=self.manifest.run, party=self.victim)
        fresh.commit(rows[: int(self.share * len(rows))])
        self.journals[self.victim] = fresh


@pytest.mark.parametrize(
    "share", [0.0, 0.7, *(pytest.param(n, marks=pytest.mark.slow) for n in (0.3, 0.9))]
)
@pytest.mark.parametrize("victim", PARTIES)
def test_a_journal_lost_in_mid_run_ends_the_run_for_all(victim, share):
    """Bug: its process used its numbers again, and the others waited until the deadline."""
    brief = manifest(epochs=60, deadline_s=3600.0)
    federation = Forgetful(brief, tables(60), victim=victim, share=share)
    faults = Faults(delay_s=DELAY_S, absences=((victim, GONE_S, BACK_S),))
    simulation = federation.simulate(faults=faults)
    assert federation.starts.count(victim) == 2
    assert "completed" not in federation.outcomes.values()
    assert simulation.now < SECONDS
    for party in PARTIES:  # bug: a coordinator that had lost its journal blamed an honest party
        reason = simulation.nodes[party].state.reason
        assert victim in (party, *reason.replace(":", "").split()), party
        assert "journal" in reason, party
