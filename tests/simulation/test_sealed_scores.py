"""Exact scores are for the active party alone: sealed on their way and in every journal."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from hdpvfl_mq.audit.audit import audit, exit_code
from hdpvfl_mq.errors import NetworkError, PeerError
from hdpvfl_mq.node.node import Node
from hdpvfl_mq.privacy.mechanism import unsealed
from hdpvfl_mq.runtime.simulation import Simulation
from parties.common_rows import block_of
from schemas.messages import ScoreShare
from tests.evidence import evidence_of
from tests.federation import LyingFederation
from tests.simulation.predicting import EXACT, prediction, trained


def exact_shares(federation) -> dict:
    said = (e for e in evidence_of(federation).said if e.header.kind == "score_share")
    return {e.header.sender: e.message.release for e in said}


def test_exact_scores_travel_sealed_and_lie_sealed_in_the_journals():
    _, models = trained()
    federation = prediction(models, **EXACT)
    simulation = federation.simulate()
    state = simulation.nodes["shop"].state
    block = block_of(simulation.nodes["shop"].role.own, state.trained.setup)
    scores = block.scores(slice(0, 77), state.trained.rounds.w).expose()
    share = exact_shares(federation)["shop"]
    words = share.tensor.array()
    assert words.dtype == np.int64
    assert not np.isin(words, scores.view(np.int64)).any()
    own = {p: federation.assets(p) for p in ("bank", "telco", "shop")}
    opened = unsealed(share, own["bank"].sealing_key("shop", share.release_id))
    assert np.array_equal(opened.tensor.array(), scores)
    with pytest.raises(PeerError, match="sealed for somebody else"):
        unsealed(share, own["telco"].sealing_key("shop", share.release_id))
    assert exit_code(audit(evidence_of(federation))) == 0


def test_every_release_has_a_seal_of_its_own():
    _, models = trained()
    own = prediction(models, **EXACT).assets("shop")
    keys = {own.sealing_key(p, f"{run}/shop/share/0") for p in ("bank", "telco") for run in "ab"}
    assert len(keys) == 4


class Unsealing(Node):
    """Lets exact scores leave as they are."""

    def _perform(self, effect, parent):
        message = getattr(effect, "message", None)
        if isinstance(message, ScoreShare):
            key = self.role.own.sealing_key("bank", message.release.release_id)
            bare = ScoreShare(**{**dict(message), "release": unsealed(message.release, key)})
            effect = replace(effect, message=bare)
        return super()._perform(effect, parent)


def test_an_exact_score_that_left_unsealed_is_refused_and_found_by_an_auditor():
    _, models = trained()
    honest = prediction(models, **EXACT)
    federation = LyingFederation(
        honest.manifest, honest.tables, honest.policies, {"shop": Unsealing}
    )
    federation.models = models
    simulation = Simulation(
        {p: partial(federation.node, p) for p in ("coordinator", *federation.parties)},
        federation.router,
    )
    with suppress(NetworkError):  # the run waits for a share that it accepts
        simulation.run()
    verdicts = audit(evidence_of(federation))
    assert "exact scores left unsealed" in verdicts[8].found
