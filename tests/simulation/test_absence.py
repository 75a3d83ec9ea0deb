"""A party that stays away: the run waits, goes on with its last block, or goes on without it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np
import pytest

from hdpvfl_mq.journal.chain import walk
from hdpvfl_mq.machine import Received, Send
from hdpvfl_mq.methods import plan_run
from hdpvfl_mq.node.mailbox import Mailbox
from hdpvfl_mq.runtime.simulation import Faults
from hdpvfl_mq.wire.codec import decode_body, decode_header
from parties.orders import NEVER
from parties.phases import Training
from schemas.methods import ActiveSide, PassiveSide
from schemas.model import PenaltySpec
from schemas.records import EnvelopeReceived
from tests.federation import Federation, manifest, tables

SLOW = {"delay_s": 0.05}


def away(policy: str, back_after_s: float, **changes) -> Federation:
    settings = {"epochs": 6, "absence": policy, "absent_after_s": 2.0, "rounds_ahead": 4}
    federation = Federation(manifest(**{**settings, **changes}))
    faults = Faults(delay_s=0.05, absences=(("shop", 1.2, back_after_s),))
    federation.simulation = federation.simulate(faults=faults)
    return federation


def shares_of(federation: Federation, party: str) -> int:
    return federation.simulation.nodes[party].state.trained.last_released + 1


def rounds_shared(federation: Federation, party: str) -> int:
    return sum("/share/" in str(entry) for _, entry in federation.spent()[party])


def test_wait_gives_the_weights_of_the_undisturbed_run():
    calm = Federation(manifest(epochs=6, rounds_ahead=4))
    expected = calm.weights(calm.simulate())
    waited = away("wait", back_after_s=60.0)
    assert set(waited.outcomes.values()) == {"completed"}
    assert waited.simulation.now > 60.0
    found = waited.weights(waited.simulation)
    # The digest of the plan differs by the absence settings alone; noise and weights do not.
    for party, w in found.items():
        np.testing.assert_array_equal(w, expected[party])


@pytest.mark.parametrize("policy", ["last", "nothing"])
def test_the_others_go_on_and_the_party_is_let_in_again(policy):
    federation = away(policy, back_after_s=6.0, epochs=15)
    assert set(federation.outcomes.values()) == {"completed"}
    rounds = plan_run(federation.manifest, 117).rounds
    shared = rounds_shared(federation, "shop")
    assert 0 < shared < rounds
    assert rounds_shared(federation, "telco") == rounds
    assert federation.simulation.nodes["bank"].state.trained.round == rounds


@pytest.mark.parametrize("policy", ["last", "nothing"])
def test_a_party_that_never_comes_back_does_not_hang_the_others(policy):
    federation = away(policy, back_after_s=60.0)
    assert federation.simulation.nodes["bank"].outcome == "completed"
    assert federation.simulation.nodes["telco"].outcome == "completed"
    assert rounds_shared(federation, "shop") < rounds_shared(federation, "telco")


def test_the_deadline_ends_a_run_that_waits_and_names_the_party():
    federation = Federation(manifest(epochs=6, absent_after_s=2.0, deadline_s=30.0))
    faults = Faults(delay_s=0.05, absences=(("shop", 0.3, 100.0),))
    simulation = federation.simulate(faults=faults)
    assert federation.outcomes["bank"] == "deadline"
    assert "shop" in simulation.nodes["bank"].state.reason


def test_skipped_updates_are_in_the_plan_where_the_policy_allows_them():
    """Contraction must not be credited for an update that may not happen."""
    strong = {
        "penalty": PenaltySpec(name="l2", strength=0.3),
        "active": ActiveSide(step_size=2.0, weight_norm=5.0),
        "passive": PassiveSide(step_size=2.0, weight_norm=200.0, received_clip=1.0),
        "epochs": 12,
    }
    waits = plan_run(manifest(**strong), 117).passive_noise
    skips = plan_run(manifest(**strong, absence="nothing"), 117).passive_noise
    assert skips.noise_std > waits.noise_std * 1.05


@pytest.mark.parametrize("policy", ["last", "nothing"])
def test_when_the_share_of_a_party_that_is_left_out_comes_is_not_information(policy):
    """Else an active party killed between ledger and journal could make another residual."""
    federation = Federation(manifest(absence=policy))
    federation.simulate()
    node, shares = federation.node("bank"), {}
    for record, stored in walk(federation.journals["bank"].records()):
        if isinstance(record.input, EnvelopeReceived):
            header = decode_header(record.input.frames)
            message = decode_body(header, record.input.frames)
            if message.kind == "score_share" and message.round == 2:
                shares[header.sender] = Received(header.sender, message)
                continue
        if len(shares) == 2:
            break
        node.refold(record, stored)
    state = replace(node.state, away_until=MappingProxyType({"telco": NEVER}))
    _, alone = node.role.step(state, shares["shop"])
    after_telco, nothing = node.role.step(state, shares["telco"])
    assert nothing == ()
    _, both = node.role.step(after_telco, shares["shop"])
    assert any(isinstance(effect, Send) and effect.message.kind == "residual" for effect in alone)
    assert both == alone


class OwedLittle(Mailbox):
    """Takes for much what a party of this test has missed after a while."""

    def owes_much(self, party):
        return self._outbox[party].waiting_bytes > 12_000


@dataclass
class Patient(Federation):
    """The active party accepts nothing of a peer that owes more than a little in the rounds."""

    def __post_init__(self):
        super().__post_init__()
        self.operators["bank"] = self.limit

    def limit(self, node):
        if isinstance(node.state, Training):
            node.mailbox.__class__ = OwedLittle


def test_a_party_that_comes_back_and_has_missed_much_is_not_named():
    """Bug: the active party withdrew before it had acknowledged 128 MiB, if a round took longer."""
    slow = {"epochs": 30, "batch_rows": 20, "rounds_ahead": 4, "absent_after_s": 20.0}
    made = Patient(manifest(**slow, absence="nothing", seed=4), tables(80))
    faults = Faults(delay_s=6.0, absences=(("shop", 100.0, 500.0),))
    made.simulate(seed=4, faults=faults)
    assert set(made.outcomes.values()) == {"completed"}
