"""What an adversary is refused, and what nobody can compute of what a party says about itself.

Each move goes through the production role; a move that is refused changes nothing and stops nobody.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from hdpvfl_mq.errors import PeerError
from hdpvfl_mq.machine import Input, LedgerRead, Received, Send
from parties.party import Party
from parties.process.build import run_secret
from schemas.alignment import KeptAlignment
from schemas.config import AlignmentSpec, IdRules, RunManifest
from schemas.envelope import PROTOCOL_VERSION
from schemas.ids import COORDINATOR
from schemas.messages import AlignStart, Hello, RunRefuse
from schemas.methods import Descent, PassiveSide, PrivateModel
from schemas.policy import PartyPolicy
from schemas.privacy import Budget
from tests.adversary.forged import Act
from tests.adversary.moves import given, sent
from tests.adversary.neighbours import Rows
from tests.adversary.pair import Pair, Side
from tests.adversary.scenarios import POLICY

DESCENT = Descent(epochs=3, batch_rows=3, passive=PassiveSide(received_clip=1.0))


def run_of(method: Descent | PrivateModel = DESCENT, passives: tuple[str, ...] = ("shop",)):
    return RunManifest(
        run="known",
        active_party="bank",
        passive_parties=passives,
        budget=Budget(epsilon=1.0, delta=0.01),
        method=method,
        alignment=AlignmentSpec(ids=IdRules(kind="integer"), rows_min=2),
        wire=PROTOCOL_VERSION,
    )


def pair_in(run: RunManifest, victim: str = "shop", secret: bytes = bytes(32)) -> Pair:
    rows = Rows(np.ones((12, 1)), np.arange(12.0) % 2)
    pair = Pair(victim, POLICY, (rows, rows.replaced(0, -np.ones(1), 1.0)), secret=secret)
    pair.enter(run)
    return pair


ALIGNED = Act("start"), Act("offer"), Act("begin"), Act("agree")
VALUES = Act("values", sender="bank", values=np.ones(1))
SHARE = Act("values", sender="shop", values=np.ones(1))
TRAINING = (*ALIGNED, Act("plan"))
ONE_ROUND = run_of(PrivateModel(columns_max=1))
TWO = run_of(passives=("shop", "telco"))
REFUSED = {
    "a residual under another name": (run_of(), "shop", TRAINING, replace(VALUES, flaw=5)),
    "the residual of the next round": (run_of(), "shop", TRAINING, replace(VALUES, shift=1)),
    "a second residual of the only round": (ONE_ROUND, "shop", (*TRAINING, VALUES), VALUES),
    "a second share of a round": (TWO, "bank", (*ALIGNED, Act("agree"), Act("plan"), SHARE), SHARE),
    "a second message before the first plan": (run_of(), "shop", (*ALIGNED, VALUES), VALUES),
    "a plan with another digest": (run_of(), "shop", ALIGNED, Act("plan", flaw=3)),
    "a plan of rounds that were planned": (run_of(), "shop", TRAINING, Act("plan", shift=-6)),
    "a plan beyond the schedule": (run_of(), "shop", ALIGNED, Act("plan", flaw=2)),
    "being left out of a run that waits": (run_of(), "shop", TRAINING, Act("resume", flaw=1)),
}


@pytest.mark.parametrize("case", REFUSED)
def test_it_is_refused_and_changes_nothing(case):
    run, victim, before, act = REFUSED[case]
    pair = pair_in(run, victim)
    for each in before:
        given(pair, each, (run,))
    states = [side.state for side in pair.sides]
    said = given(pair, act, (run,))
    assert [word[:8] for word in said] == ["refused:"]
    assert all(side.state is state for side, state in zip(pair.sides, states, strict=True))


# -- what a party says about itself --------------------------------------------------------------


def first_side(secret: bytes = bytes(32)) -> Side:
    return pair_in(run_of(), secret=secret).sides[0]


def told(side: Side, *acts: Act) -> list:
    """The messages one party sends in answer to these moves."""
    found = []
    for act in acts:
        step: Input | None = sent(act, side, (run_of(),))
        while step is not None:
            side.state, effects = side.role.step(side.state, step)
            found += [effect.message for effect in effects if isinstance(effect, Send)]
            is_due = side.settled(effects)
            step = LedgerRead(standing=side.book.standing()) if is_due else None
    return found


def test_nobody_without_the_runs_secret_can_compute_what_a_hello_says():
    """Bug: an unkeyed digest of rows tests a guess about one of them."""
    hellos: list[Hello] = [told(first_side(s), Act("start"))[0] for s in (b"a" * 32, b"b" * 32)]
    for field in ("dataset_fingerprint", "toss_commitment", "seed_commitment"):
        assert getattr(hellos[0], field) != getattr(hellos[1], field), field


def test_nobody_without_the_shared_key_can_compute_the_digest_of_the_order():
    digests = set()
    for key in (b"a" * 32, b"b" * 32):
        side = first_side()
        kept = KeptAlignment(**{**dict(side.own.kept[0]), "shared_key": key})
        side.role = Party(replace(side.own, kept=(kept,)))
        digests.add(told(side, *ALIGNED)[-1].order_digest)
    assert len(digests) == 2


def test_a_party_does_not_start_under_a_commitment_it_never_made():
    side = first_side()
    told(side, *ALIGNED[:2])
    start = AlignStart(is_kept=False, commitments=(bytes(32), bytes(32)))
    with pytest.raises(PeerError, match="a commitment that is not ours"):
        side.role.step(side.state, Received(COORDINATOR, start))


def test_constants_that_were_fitted_to_the_rows_need_the_word_of_the_policy():
    side = first_side()
    strict = PartyPolicy(**{**dict(POLICY), "learned_constants": False})
    settings = type(side.own.data.settings)(learned=True)
    data = replace(side.own.data, settings=settings)
    side.role = Party(replace(side.own, policy=strict, data=data))
    refusal = told(side, *ALIGNED[:2])[-1]
    assert isinstance(refusal, RunRefuse)
    assert "learned_constants" in refusal.rule


def test_a_runs_secret_is_drawn_once_and_not_from_its_name(tmp_path):
    """Bug: noise of a key that everybody can compute is no noise."""
    paths = [tmp_path / party / "secrets" / "the-run.secret" for party in ("a", "b")]
    for path in paths:
        path.parent.mkdir(parents=True)
    one, other = (run_secret(path) for path in paths)
    assert run_secret(paths[0]) == one
    assert one[0] != other[0]
    assert one[1] != other[1]
