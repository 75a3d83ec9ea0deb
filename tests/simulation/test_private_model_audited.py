"""Both verifiers over honest runs of the private model, in every mode, and over a second run."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hdpvfl_mq.audit.audit import audit
from schemas.methods import PrivateModel
from schemas.privacy import Release
from schemas.records import Book
from tests.evidence import edited, evidence_of, relinked, with_rows
from tests.federation import Federation, manifest, policy, tables
from tests.unit.audit.test_audit import independent

PARTIES = ("bank", "shop", "telco")
MODES = {
    "gaussian": PrivateModel(columns_max=8),
    "bounded": PrivateModel(columns_max=8, noise="bounded"),
    "disclosed": PrivateModel(columns_max=8, disclosed_rows=20),
    "held out": PrivateModel(columns_max=8, held_out_rows=25),
    "disclosed and held out": PrivateModel(columns_max=8, disclosed_rows=20, held_out_rows=25),
    "disclosed and bounded": PrivateModel(columns_max=8, disclosed_rows=20, noise="bounded"),
}
ALLOWED = policy(noises=("gaussian", "bounded"), pure_slots=(1.0, 1.0), disclosed_rows_max=99)


def run(method: PrivateModel, name: str = "test-run") -> Federation:
    policies = dict.fromkeys(PARTIES, ALLOWED)
    return Federation(manifest(method=method, run=name), tables(), policies=policies)


def second(mode: str) -> Federation:
    """A run after a first one, on the same ledgers and with the X'X that the first one left."""
    first = run(MODES[mode], "first-run")
    simulation = first.simulate()
    after = run(MODES[mode])
    after.ledgers = first.ledgers
    after.kept_grams = {p: simulation.nodes[p].state.trained.rounds.gram for p in ("shop", "telco")}
    return after


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("made", [lambda mode: run(MODES[mode]), second], ids=["first", "second"])
def test_an_honest_run_raises_no_alarm(made, mode, tmp_path):
    federation = made(mode)
    federation.simulate()
    assert set(federation.outcomes.values()) == {"completed"}
    evidence = evidence_of(federation)
    assert [v for v in audit(evidence) if v.found] == []
    assert independent(evidence, tmp_path) == {}


def test_statistics_that_are_booked_for_less_are_noticed(tmp_path):
    """A passive party that books X'z at half its price says so in its own journal."""
    federation = run(MODES["gaussian"])
    federation.simulate()
    evidence = replace(evidence_of(federation), ledgers={})
    rows = list(evidence.transcripts["shop"].records)
    at = next(n for n, r in enumerate(rows) if any(isinstance(e, Book) for e in r.effects))
    effects = tuple(_halved(effect) for effect in rows[at].effects)
    rows[at] = edited(rows[at], effects=effects)
    forged = with_rows(evidence, "shop", relinked(rows))
    assert 10 in {v.number for v in audit(forged) if v.found}
    assert 12 in independent(forged, tmp_path)


def _halved(effect):
    if not isinstance(effect, Book) or "/moments/" not in effect.release.release_id:
        return effect
    event = effect.release.event
    cheap = type(event)(**{**dict(event), "mu2_units": event.mu2_units // 2})
    return Book(release=Release(**{**dict(effect.release), "event": cheap}))
