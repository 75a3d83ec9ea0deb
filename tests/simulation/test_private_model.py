"""Whole runs of the private model: what is booked, kept, disclosed and refused."""

from __future__ import annotations

import numpy as np
import pytest

from hdpvfl_mq.journal.chain import walk
from hdpvfl_mq.methods import plan_run
from hdpvfl_mq.privacy.ledger_store import Ledger
from schemas.methods import PrivateModel
from schemas.records import Book
from tests.federation import Federation, manifest, policy, tables

METHOD = PrivateModel(columns_max=8)


def run(method: PrivateModel = METHOD, **changes):
    federation = Federation(manifest(method=method), tables(), **changes)
    return federation, federation.simulate()


def booked(federation: Federation, party: str) -> list[str]:
    return [
        effect.release.release_id.split("/")[2]
        for record, _ in walk(federation.journals[party].records())
        for effect in record.effects
        if isinstance(effect, Book)
    ]


def spent(federation: Federation, party: str) -> int:
    books = Ledger(federation.ledgers[party], party).books
    return books.runs["people", "test-run"].spent.mu2_units


def test_a_run_books_every_release_and_nothing_else():
    federation, simulation = run()
    assert set(federation.outcomes.values()) == {"completed"}
    plan = simulation.nodes["bank"].state.trained.setup.plan
    for party in ("shop", "telco"):
        assert booked(federation, party) == ["moments", "gram"]
        assert spent(federation, party) == plan.spent_by("passive").mu2_units
    assert booked(federation, "bank") == []
    assert spent(federation, "bank") == plan.spent_by("active").mu2_units


def test_a_kept_gram_is_used_again_for_nothing():
    first, simulation = run()
    kept = simulation.nodes["shop"].state.trained.rounds.gram
    second = Federation(manifest(method=METHOD, run="test-run"), tables())
    second.kept_grams = {"shop": kept}
    after = second.simulate()
    assert booked(second, "shop") == ["moments"]
    assert after.nodes["shop"].state.trained.rounds.gram == kept
    gram = after.nodes["bank"].state.trained.setup.plan.inner_noise["gram"]
    assert spent(second, "shop") == spent(first, "shop") - gram.mu2_cumulative[-1]


def test_a_kept_gram_with_too_much_noise_is_made_again_and_paid():
    _, simulation = run()
    kept = simulation.nodes["shop"].state.trained.rounds.gram
    second = Federation(manifest(method=METHOD), tables())
    second.kept_grams = {"shop": type(kept)(**{**dict(kept), "noise_std": 100 * kept.noise_std})}
    second.simulate()
    assert booked(second, "shop") == ["moments", "gram"]


def test_disclosed_scores_are_exact_sealed_and_booked_as_disclosed():
    method = PrivateModel(columns_max=8, disclosed_rows=20, held_out_rows=10)
    allowed = {p: policy(disclosed_rows_max=30) for p in ("bank", "shop", "telco")}
    federation, simulation = run(method, policies=allowed)
    assert set(federation.outcomes.values()) == {"completed"}
    entries = [entry for _, entry in federation.spent()["shop"]]
    shares = [e for e in entries if getattr(e, "event", None) and "/share/" in e.event.release_id]
    assert [(e.event.mechanism, e.event.disclosed_rows, e.keyed) for e in shares] == [
        ("disclosed", 30, True)
    ]
    assert simulation.nodes["bank"].state.trained.rounds.held_out["rows"] == 10


def test_a_policy_that_discloses_nothing_refuses():
    method = PrivateModel(columns_max=8, disclosed_rows=20)
    federation = Federation(manifest(method=method), tables())
    federation.simulate()
    assert set(federation.outcomes.values()) == {"refused"}


def test_more_columns_than_the_manifest_has_room_for_are_refused():
    federation, _ = run(PrivateModel(columns_max=2))
    assert set(federation.outcomes.values()) == {"refused"}


@pytest.mark.parametrize("held_out", [0, 30])
def test_nothing_is_learnt_from_rows_held_out(held_out):
    plan = plan_run(manifest(method=PrivateModel(held_out_rows=held_out)), 117)
    assert plan.residual_count(0) == 117 - held_out
    _, simulation = run(PrivateModel(columns_max=8, held_out_rows=held_out))
    rounds = simulation.nodes["bank"].state.trained.rounds
    assert rounds.held_out.get("rows", 0) == held_out
    assert np.isfinite(rounds.w).all()
