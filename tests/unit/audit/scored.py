"""Scoring sessions in which a passive party departs from the protocol, with consistent journals."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np

from hdpvfl_mq.audit.evidence import Evidence
from hdpvfl_mq.machine import Charge
from hdpvfl_mq.privacy.mechanism import SEAL_WORDS
from schemas.ids import release_id
from schemas.tensor import Tensor
from tests.evidence import Cheat, evidence_of, replace_model, saying
from tests.simulation.scoring import Session, session, trained


@cache
def _models():
    return trained()[1]


def scored(says: Callable | None = None) -> Evidence:
    """A session in which shop says something else; the others score without it."""
    ran: Session = session(_models(), rows=30, answer_within_s=0.5, partner_away="without")
    honestly = ran.federation.node

    def node(party):
        made = honestly(party)
        if party == "shop" and says is not None:
            made.role = Cheat(made.role, says=says)
        return made

    ran.federation.node = node
    ran.run()
    return evidence_of(ran.federation)


def _replies(**changes) -> Evidence:
    return scored(saying("score_reply", lambda m: _changed(m, changes)))


def _changed(message, changes):
    made = {name: change(message) for name, change in changes.items()}
    return replace_model(message, release=replace_model(message.release, **made))


def score_with_small_noise() -> Evidence:
    return _replies(noise_std=lambda m: m.release.noise_std + 1.0)


def cheap_score() -> Evidence:
    """It declares that nobody's score is disclosed."""
    return _replies(event=lambda m: replace_model(m.release.event, disclosed_rows=0))


def unsealed_score() -> Evidence:
    return _replies(tensor=lambda m: Tensor.of(np.zeros(m.release.tensor.shape)))


def score_too_many() -> Evidence:
    """One more score than the account has granted."""
    return _replies(tensor=lambda m: Tensor.of(np.append(m.release.tensor.array(), 2**40)))


def score_of_another_query() -> Evidence:
    """It leaves under the release id of another query."""

    def named(message):
        return release_id("scores", "shop", "score", message.number + 100)

    return _replies(
        release_id=named,
        event=lambda m: replace_model(m.release.event, release_id=named(m)),
    )


def others_charged() -> Evidence:
    """The account is charged for one person, whoever was asked for."""

    def says(effect):
        if not isinstance(effect, Charge):
            return (effect,)
        return (replace_model(effect, places=Tensor.of(np.array([0], dtype=np.int64))),)

    return scored(says)


def uncharged_score() -> Evidence:
    """It says that somebody was refused whom the account had granted."""

    def change(message):
        count = len(message.release.tensor.array()) - 1
        tensor = Tensor.of(message.release.tensor.array()[:count])
        event = replace_model(message.release.event, disclosed_rows=count - SEAL_WORDS)
        release = replace_model(message.release, tensor=tensor, event=event)
        bits = bytes([0x80]) + bytes((count - SEAL_WORDS) // 8)
        return replace_model(message, refused=bits, release=release)

    return scored(saying("score_reply", change))
