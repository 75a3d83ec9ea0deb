"""A coordinator, an active party or a ledger that departs: all end in seconds, and nobody trains.

Every party holds the same terms before it releases anything, believes no end that does not fit what
it has done, and hears from others when it was told something else than they were.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest

from broker.coordinator import Coordinator
from hdpvfl_mq.errors import RefusedError
from hdpvfl_mq.machine import Effect, LedgerRead, OperatorRequest, Received, Send
from hdpvfl_mq.node.node import Node
from hdpvfl_mq.wire.codec import model_digest
from hdpvfl_mq.wire.signing import sign
from parties.leaving import CLOSING_S
from parties.phases import Training
from parties.witness import statement
from schemas.envelope import PROTOCOL_VERSION
from schemas.ids import COORDINATOR
from schemas.messages import Resume, RunClosed
from schemas.methods import PrivateModel
from schemas.signed import Ending, LedgerWitness
from schemas.tensor import Tensor
from tests.evidence import BlindBook, Cheat, hearing, replace_model
from tests.federation import Federation, manifest, tables

QUICK = {"batch_rows": 20, "rounds_ahead": 4}
SECONDS = 2 * CLOSING_S  # virtual: everybody has ended by then


class Leaver(Cheat):
    """Its operator wants to leave as soon as rounds run."""

    def step(self, state, given):
        if isinstance(state, Training):
            given = OperatorRequest(request="withdraw")
        return self.role.step(state, given)


@dataclass
class Departing(Federation):
    """Some roles say or hear something else than they should."""

    cheats: dict[str, dict[str, Callable]] = field(default_factory=dict)

    leaver: str = ""  # withdraws when its rounds begin

    def node(self, party: str) -> Node:
        node = super().node(party)
        if party == self.leaver:
            node.role = Leaver(node.role)
        if party in self.cheats:
            node.role = Cheat(node.role, **self.cheats[party])
            node.ledger = None if party == COORDINATOR else BlindBook()
        return node


def departing(settings: dict, **cheats) -> Departing:
    return Departing(manifest(**{**QUICK, **settings}), tables(44), cheats=cheats)


def released(federation: Federation) -> int:
    entries = federation.spent().values()
    return sum(entry.kind == "spend" for party in entries for _, entry in party)


def ended(federation: Federation, *, by: str = "mismatch", but: Sequence[str] = ()):
    """Run it: nobody has completed, everybody knows why, within seconds."""
    simulation = federation.simulate()
    for party in set(federation.parties) - set(but):
        assert federation.outcomes[party] == by, (party, federation.outcomes)
        assert simulation.nodes[party].state.reason
    assert simulation.now < SECONDS
    return {p: simulation.nodes[p].state.reason for p in federation.parties}


def told_apart(kind: str, party: str, change: Callable) -> Callable[[Effect], Sequence[Effect]]:
    """One party gets another message of a kind than all others."""

    def says(effect: Effect) -> Sequence[Effect]:
        if not (isinstance(effect, Send) and effect.message.kind == kind and party in effect.to):
            return (effect,)
        others = tuple(p for p in effect.to if p != party)
        same = (Send(others, effect.message),) if others else ()
        return (*same, Send((party,), change(effect.message)))

    return says


# -- terms --------------------------------------------------------------------------------------


def splitting(settings: dict) -> dict[str, Callable]:
    """A coordinator that offers telco another seed, and hides that telco read another manifest."""
    run = manifest(**{**QUICK, **settings})
    other = replace_model(run, seed=run.seed + 1)
    return {
        "says": told_apart("run_offer", "telco", lambda m: replace_model(m, manifest=other)),
        "hears": hearing(
            "run_accept", lambda m: replace_model(m, manifest_digest=model_digest(run))
        ),
    }


def with_kept_alignments(federation: Federation) -> Federation:
    first = Federation(manifest(**QUICK, run="first-run"), tables(44))
    simulation = first.simulate()
    states = {p: simulation.nodes[p].state for p in first.parties}
    federation.kept = {p: (s.trained.setup.alignment,) for p, s in states.items()}
    return federation


@pytest.mark.parametrize("method", [{}, {"method": PrivateModel(columns_max=8)}])
def test_a_split_manifest_with_a_kept_alignment_releases_nothing(method):
    """Bug: nothing was exchanged, all trained on misaligned rows and ended with exit code 0."""
    federation = with_kept_alignments(departing(method, coordinator=splitting(method)))
    reasons = ended(federation)
    assert "telco holds another manifest" in reasons["bank"]
    assert "telco holds another manifest" in reasons["shop"]
    assert released(federation) == 0


@pytest.mark.parametrize("wire", [{"wire": 1}, {"wire": 2}])
def test_a_split_manifest_ends_entity_resolution_at_once(wire):
    """Bug: the parties refused each other's blocks until the deadline."""
    federation = departing(wire, coordinator=splitting(wire))
    reasons = ended(federation)
    assert "telco has other terms of entity resolution: compare manifests" in reasons["bank"]
    noticed = "compare manifests", "telco holds another manifest"
    assert all(any(text in reason for text in noticed) for reason in reasons.values()), reasons
    assert released(federation) == 0


@pytest.mark.parametrize("wire", [1, 2])
def test_other_keys_of_a_member_are_noticed_before_a_release(wire):
    """Two parties that know a third by different keys have been introduced to different people."""
    stranger = departing({}).keys["telco"]

    class Misled(Departing):
        def assets(self, party):
            own = super().assets(party)
            if party == "telco":
                keys = {**own.verify_keys, "shop": stranger.verify_key}
                own = type(own)(**{**vars(own), "verify_keys": keys})
            return own

    misled = Misled(manifest(wire=wire, **QUICK), tables(44))
    reasons = ended(misled)
    assert "telco knows other members or keys" in reasons["bank"]
    assert released(misled) == 0


@pytest.mark.parametrize("who", ["shop", "telco"])
def test_a_forged_signature_in_the_agreement_is_laid_to_who_forwarded_it(who):
    """Bug: the owner of the signature was named, who is honest."""
    number = {"shop": 1, "telco": 2}[who]

    def forge(message):
        signatures = list(message.signatures)
        signatures[number] = bytes(64)
        return replace_model(message, signatures=tuple(signatures))

    federation = departing({}, bank={"says": told_apart("agreed", "shop", forge)})
    reasons = ended(federation)
    assert "bank made or forwarded a signature" in reasons["shop"]


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_forged_signature_under_the_end_is_laid_to_who_forwarded_it(number):
    """Bug: the owner of the signature was named, who is honest."""

    def forge(message):
        signatures = list(message.signatures)
        signatures[number] = bytes(64)
        return replace_model(message, signatures=tuple(signatures))

    federation = departing({}, bank={"says": told_apart("ended", "shop", forge)})
    reasons = ended(federation)
    assert "bank made or forwarded a signature" in reasons["shop"]


# -- ends ---------------------------------------------------------------------------------------


def without_telco(message):
    """The signatures under the end without one."""
    kept = zip(message.parties, message.signatures, strict=True)
    parties, signatures = zip(*(each for each in kept if each[0] != "telco"), strict=True)
    return replace_model(message, parties=parties, signatures=signatures)


def test_an_end_that_lacks_a_signature_is_laid_to_who_forwarded_it():
    """Bug: shop waited for nobody until the deadline, and all were told that they wait for shop."""
    cut = {"says": told_apart("ended", "shop", without_telco)}
    reasons = ended(departing({"epochs": 1}, bank=cut))
    assert all("bank sent it what the protocol does not allow" in r for r in reasons.values())


def test_a_party_waits_for_the_active_party_until_all_that_are_present_have_signed():
    """Where parties may be left out, the orders that leave telco out may still be on their way."""
    cut = {"says": told_apart("ended", "shop", without_telco)}
    times = {"deadline_s": 60.0, "absent_after_s": 10.0}
    settings = {"epochs": 1, "absence": "nothing", "wire": PROTOCOL_VERSION, **times}
    federation, shown = departing(settings, bank=cut), []
    federation.operators["shop"] = lambda node: shown.append((node.state, node.role))
    simulation = federation.simulate()
    closed = simulation.nodes[COORDINATOR].state
    assert closed.reason == "while training, waiting for bank"  # bug: for shop
    state, role = next(each for each in reversed(shown) if isinstance(each[0], Training))
    assert set(state.endings) == {"bank", "shop"}
    assert role.progress(state)["waiting_for"] == ["bank"]


def test_completed_before_the_rounds_is_not_believed():
    """Bug: believed in any phase, and a model of zeros was written."""

    def says(effect):
        closing = Send(("bank", "shop", "telco"), RunClosed(outcome="completed", reason=""))
        is_plan = isinstance(effect, Send) and effect.message.kind == "round_plan"
        return (closing,) if is_plan else (effect,)

    federation = departing({}, coordinator={"says": says})
    reasons = ended(federation)
    assert all("has done 0 of" in reason for reason in reasons.values())


def test_completed_for_one_party_ends_the_run_for_all():
    def says(effect):
        early = Send(("telco",), RunClosed(outcome="completed", reason=""))
        is_plan = isinstance(effect, Send) and effect.message.kind == "round_plan"
        return (early, effect) if is_plan and effect.message.first else (effect,)

    federation = departing({}, coordinator={"says": says})
    reasons = ended(federation)
    assert "telco withdrew: the coordinator states an outcome that contrad" in reasons["shop"]


@dataclass
class Rushed(Cheat):
    """All its passive parties send a forged end, and co-sign its last head, before its own end."""

    rushing: Callable = lambda state: ()

    def step(self, state, given):
        early: tuple[Effect, ...] = ()
        if isinstance(given, LedgerRead) and isinstance(state, Training):
            for message in self.rushing(state):
                state, more = self.role.step(state, message)
                early += more
            assert not any(isinstance(effect, Send) for effect in early), "it reports its end"
            completed = Received(COORDINATOR, RunClosed(outcome="completed", reason=""))
            assert self.role.step(state, completed)[0].outcome == "mismatch"
        state, effects = self.role.step(state, given)
        return state, (*early, *effects)


def test_endings_that_came_early_count_only_when_they_are_verified():
    """Bug: the active party reported the run as completed before it had verified any of them.

    A head that it signed at the end of another run may be its newest in this run too.
    """

    class Rushing(Departing):
        def node(self, party):
            node = super().node(party)
            if party == "bank":
                node.role = Rushed(node.role, rushing=self.rushing)
            return node

        def rushing(self, state):
            head, keys = state.standing.head, self.keys
            stated = statement("bank", head)
            signed = {"head": head, "owner_signature": sign(keys["bank"], stated)}
            for party in ("shop", "telco"):
                witness = LedgerWitness(**signed, signature=sign(keys[party], stated))
                ending = Ending(rounds=1, residuals_digest=bytes(32), signature=bytes(64))
                yield from (Received(party, ending), Received(party, witness))

    federation = Rushing(manifest(**QUICK), tables(44))
    reasons = ended(federation)
    assert "shop reports residuals that differ" in reasons["bank"]


def test_a_refusal_after_all_have_accepted_is_not_believed():
    def says(effect):
        refused = Send(("bank", "shop", "telco"), RunClosed(outcome="refused", reason="shop: no"))
        is_plan = isinstance(effect, Send) and effect.message.kind == "round_plan"
        return (refused,) if is_plan else (effect,)

    reasons = ended(departing({}, coordinator={"says": says}))
    assert all("all had accepted it" in reason for reason in reasons.values())


def test_a_withdrawal_ends_the_run_though_the_coordinator_keeps_it_to_itself():
    """Bug: the others waited until the deadline."""
    federation = departing({}, coordinator={"says": lambda e: () if _is_closing(e) else (e,)})
    federation.leaver = "shop"
    simulation = federation.simulate()
    assert set(federation.outcomes.values()) == {"withdrawn"}
    for party in ("bank", "telco"):
        reason = simulation.nodes[party].state.reason
        assert reason == "shop withdrew: its operator asked for it"
    assert simulation.now < SECONDS


def _is_closing(effect: Effect) -> bool:
    return isinstance(effect, Send) and effect.message.kind == "run_closed"


class Refusing:
    """A ledger that had room when the run was offered and has none when it is reserved."""

    def __init__(self, book):
        self._book = book

    def __getattr__(self, name):
        return getattr(self._book, name)

    def reserve(self, reservation):
        raise RefusedError("another run has taken what was left")


def test_a_reserve_that_the_ledger_refuses_ends_the_run_for_all():
    """Bug: that process stopped with exit code 3 and the others waited for it."""

    class Poor(Departing):
        def node(self, party):
            node = super().node(party)
            if party == "shop":
                node.ledger = Refusing(node.ledger)
            return node

    federation = Poor(manifest(**QUICK), tables(44))
    reasons = ended(federation, by="withdrawn")
    assert "the ledger refuses to reserve" in reasons["shop"]
    assert reasons["bank"] == "shop withdrew: its privacy budget does not allow the run"
    assert released(federation) == 0


# -- double tongues -------------------------------------------------------------------------------


def other_residual(round_: int) -> Callable:
    def change(message):
        if message.round != round_:
            return message
        values = np.array(message.release.tensor.array())[::-1]
        release = replace_model(message.release, tensor=Tensor.smallest(values.astype(np.int64)))
        return replace_model(message, release=release)

    return change


@pytest.mark.parametrize("settings", [{"epochs": 40}, {"method": PrivateModel(columns_max=8)}])
def test_different_residuals_for_different_parties_are_noticed(settings):
    """Bug: noticed only when journals were laid side by side."""
    lying = {"says": told_apart("residual", "telco", other_residual(0))}
    federation = departing(settings, bank=lying)
    reasons = ended(federation)
    assert any("residuals" in reason for reason in reasons.values())


def test_different_residuals_are_noticed_though_the_coordinator_helps(monkeypatch):
    monkeypatch.setattr(Coordinator, "_contradicted", lambda *_: None)
    lying = {"says": told_apart("residual", "telco", other_residual(0))}
    federation = departing({}, bank=lying)
    reasons = ended(federation)
    assert "reports residuals that differ" in reasons["bank"]


def test_the_coordinator_notices_long_before_the_end():
    lying = {"says": told_apart("residual", "telco", other_residual(0))}
    federation = departing({"epochs": 40}, bank=lying)
    simulation = federation.simulate()
    assert "have not had the same residuals of bank" in simulation.nodes[COORDINATOR].state.reason
    assert simulation.nodes["shop"].state.trained.round < 20


def test_different_orders_for_different_parties_are_noticed():
    """Telco is left out in the active party's ears only: its shares would be paid and ignored."""

    def says(effect):
        if isinstance(effect, Send) and effect.message.kind == "round_plan":
            left_out = {"round": effect.message.last, "absent": ("telco",)}
            return (effect, Send(("bank",), Resume(**left_out)))
        return (effect,)

    federation = departing({"absence": "nothing", "epochs": 10}, coordinator={"says": says})
    reasons = ended(federation)
    assert "reports orders from the coordinator that differ" in reasons["bank"]
    assert "reports orders from the coordinator that differ" in reasons["shop"]
