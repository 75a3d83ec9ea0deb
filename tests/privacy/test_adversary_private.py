"""The private model under an adversary: what each release tells of a row, and what nobody may see.

Kept episodes through the production roles, ledger and store of statistics: every bound is reached
and none exceeded, with either noise, over several runs, with rows held out and rows disclosed.
"""

from __future__ import annotations

import numpy as np
import pytest

from hdpvfl_mq.errors import PeerError
from hdpvfl_mq.privacy.mechanism import Mechanism, _sealed, unsealed
from hdpvfl_mq.privacy.plan import plan_silent
from parties.phases import Closed, Training
from schemas.config import AlignmentSpec, IdRules, RunManifest
from schemas.envelope import PROTOCOL_VERSION
from schemas.methods import PrivateModel
from schemas.model import LossSpec
from schemas.privacy import SCALE_MAX, SCALE_MIN, Budget, Release
from tests.adversary.forged import FLAWS, Act, made, sealed
from tests.adversary.moves import given
from tests.adversary.neighbours import Rows
from tests.adversary.pair import Pair
from tests.adversary.scenarios import BOUNDED, POLICY
from tests.adversary.tap import Leak

ROWS = 12
TOLD = Act("start"), Act("offer"), Act("begin"), Act("agree"), Act("plan")
ENDED = Act("end"), Act("end"), Act("closed")


def manifest(run: str = "kept", *, epsilon: float = 3.0, seed: int = 0, **method) -> RunManifest:
    return RunManifest(
        run=run,
        active_party="bank",
        passive_parties=("shop",),
        budget=Budget(epsilon=epsilon, delta=0.01),
        method=PrivateModel(columns_max=1, **method),
        alignment=AlignmentSpec(ids=IdRules(kind="integer"), rows_min=2),
        seed=seed,
        wire=PROTOCOL_VERSION,
    )


def turned(row: int = 0, rows: int = ROWS) -> tuple[Rows, Rows]:
    """One column of ones; one row of it and its label turned around."""
    one = Rows(np.ones((rows, 1)), np.arange(rows) % 2.0)
    return one, one.replaced(row, -np.ones(1), 1.0 - row % 2)


def pair_of(victim: str = "shop", *, row: int = 0, policy=POLICY, rows: int = ROWS) -> Pair:
    return Pair(victim, policy, turned(row, rows))


def drive(pair: Pair, run: RunManifest, *acts: Act) -> Pair:
    for act in acts:
        given(pair, act, (run,))
    return pair


def values(pair: Pair, numbers: np.ndarray, flaw: int = 0) -> Act:
    sender = "shop" if pair.victim == "bank" else "bank"
    return Act("values", sender=sender, values=numbers, flaw=flaw)


def played(pair: Pair, run: RunManifest, numbers: np.ndarray, flaw: int = 0) -> Pair:
    pair.enter(run)
    return drive(pair, run, *TOLD, values(pair, numbers, flaw), *ENDED)


def first_only(rows: int = ROWS) -> np.ndarray:
    return np.r_[1.0, np.zeros(rows - 1)]


# -- what is told is what is booked ----------------------------------------------------------------


@pytest.mark.parametrize("noise", ["gaussian", "bounded"])
def test_labels_tell_all_that_is_booked_and_no_more(noise):
    pair = pair_of("bank", policy=BOUNDED if noise == "bounded" else POLICY)
    played(pair, manifest(noise=noise), first_only())
    assert 0.99 < pair.peak <= 1.0 + 1e-9


@pytest.mark.parametrize("noise", ["gaussian", "bounded"])
def test_moments_and_scores_tell_most_of_what_is_booked(noise):
    """The replaced row pulls alone, and its score shows it; X'X of one column does not move."""
    pair = pair_of(policy=BOUNDED if noise == "bounded" else POLICY)
    run = manifest(noise=noise, score_bound=0.25, gram_share=0.01, moments_share=0.3)
    played(pair, run, first_only())
    assert 0.85 < pair.peak <= 1.0 + 1e-9
    assert (pair.tap.pure > 0.0) == (noise == "bounded")


def test_scores_tell_all_that_is_booked_for_them():
    """Rows of one half of the unit and a bound far below: the replaced score moves by 2 B."""
    pair = pair_of(policy=POLICY)
    run = manifest(score_bound=0.25, gram_share=0.01, moments_share=0.01, epsilon=15.0)
    played(pair, run, np.r_[np.zeros(ROWS - 1), 1.0])
    assert 0.9 < pair.peak <= 1.0 + 1e-9


@pytest.mark.parametrize("loss", ["logistic", "least_squares"])
def test_bounded_noise_is_as_wide_as_its_law(loss):
    """Of many labels and scores, as many stay in the window as the law says."""
    rows = 600
    for victim, method in (("bank", {}), ("shop", {"score_bound": 0.25})):
        pair = pair_of(victim, policy=BOUNDED, rows=rows)
        pair.label_kind = "binary" if loss == "logistic" else "real"
        run = manifest(noise="bounded", epsilon=0.5, **method)
        run = RunManifest(**{**dict(run), "loss": LossSpec(name=loss)})
        played(pair, run, first_only(rows))
        assert pair.tap.hit_variance > 50.0
        pair.tap.check_noise()


def test_statistics_that_are_kept_are_paid_once_and_told_once():
    """Three runs of one data set: X'X leaves the rows once, whatever else the runs ask for."""
    pair, told = pair_of(), []
    with pair.keeping():
        for number, run in enumerate(
            (
                manifest("one"),
                manifest("two", seed=9, received_clip=30.0),
                manifest("three", seed=5, held_out_rows=1),
            )
        ):
            played(pair, run, np.roll(first_only(), number))
            told.append([name for name in pair.tap.told if "/gram/" in name])
            assert isinstance(pair.view, Closed)
            assert pair.view.trained is not None
    assert told == [["one/shop/gram/0"]] * 3
    assert pair.tap.spent <= pair.booked


def test_a_gram_with_too_much_noise_is_paid_again():
    pair = pair_of()
    with pair.keeping():
        for name, epsilon in (("coarse", 0.5), ("fine", 15.0)):
            played(pair, manifest(name, epsilon=epsilon), first_only())
    assert [name for name in pair.tap.told if "/gram/" in name] == [
        "coarse/shop/gram/0",
        "fine/shop/gram/0",
    ]


def test_a_statistic_that_was_never_booked_is_noticed():
    """What the search would say of a kept X'X that nobody has paid for."""
    pair = pair_of()
    pair.enter(manifest())
    drive(pair, manifest(), *TOLD)
    for side in pair.sides:
        side.settled = lambda effects: False
    with pytest.raises(Leak, match="booked are"):
        drive(pair, manifest(), values(pair, first_only()))


@pytest.mark.parametrize(("row", "told"), [(0, 1), (3, 1), (4, 0), (10, 0), (11, 1)])
def test_exact_scores_are_of_disclosed_rows_alone(row, told):
    """The first four and the one held out are disclosed; other rows show in no exact score."""
    run = manifest(disclosed_rows=4, held_out_rows=1)
    pair = played(pair_of(row=row), run, np.ones(1))
    assert isinstance(pair.view, Closed)
    assert pair.tap.disclosed == told


def test_an_exact_score_of_another_row_is_noticed():
    run = manifest(disclosed_rows=4, held_out_rows=1)
    pair = pair_of(row=2)
    pair.enter(run)
    pair.tap.replaced = 5
    with pytest.raises(Leak, match="not disclosed"):
        drive(pair, run, *TOLD, values(pair, np.ones(1)))


# -- a partner's numbers and the labels decide nothing that shows ----------------------------------


@pytest.mark.parametrize("flaw", range(FLAWS))
@pytest.mark.parametrize("extreme", [1.0, 1e200])
def test_no_share_stops_the_last_fit(flaw, extreme):
    """Bug: a scale of 1e-300 stopped the active party; labels can decide whether a fit fails."""
    rows = Rows(
        np.full((ROWS, 1), extreme) * np.r_[-1.0, np.ones(ROWS - 1)][:, None], np.arange(ROWS) % 2.0
    )
    pair = Pair("bank", POLICY, (rows, rows.replaced(3, np.zeros(1), 0.0)))
    pair.enter(manifest())
    drive(pair, manifest(), *TOLD, values(pair, np.ones(1), flaw))
    assert isinstance(pair.view, Training)


def test_a_fit_that_fails_leaves_public_weights_and_tells_the_owner(monkeypatch):
    def failed(*given, **named):
        raise np.linalg.LinAlgError("singular")

    monkeypatch.setattr("parties.rounds.shares_fit.last_fit", failed)
    pair = played(pair_of("bank"), manifest(), np.ones(1))
    rounds = pair.view.trained.rounds
    assert isinstance(pair.view, Closed)
    assert "last fit failed" in rounds.trouble
    assert rounds.fit is None


@pytest.mark.parametrize("scale", [2.0 * SCALE_MAX, SCALE_MIN / 2.0, 0.0, -1.0])
def test_a_scale_beyond_reason_is_no_release(scale):
    honest = made(Act("values"), "kept/shop/share/0", plan_silent(), 1)
    with pytest.raises(ValueError, match="scale"):
        Release(**{**dict(honest), "scale": scale})


# -- a rolled-back disk ----------------------------------------------------------------------------


def labels_of(epsilon: float) -> np.ndarray:
    """The noise of a run's labels; the run's name, its secret and the rows are the same."""
    rows = 2000
    one = Rows(np.zeros((rows, 1)), np.arange(rows) % 2.0)
    pair = Pair("bank", POLICY, (one, one.replaced(0, np.zeros(1), 1.0)))
    run = manifest(epsilon=epsilon)
    pair.enter(run)
    seen = []
    release = Mechanism.release

    def noted(self, values, *address, **rest):
        made = release(self, values, *address, **rest)
        seen.append(made.tensor.array() * 2.0**made.exponent - values.expose())
        return made

    Mechanism.release = noted
    try:
        drive(pair, run, *TOLD)
    finally:
        Mechanism.release = release
    return seen[0]


def test_another_epsilon_on_the_same_labels_draws_other_noise():
    """Bug: journal and ledger rolled back, the run offered again with another epsilon.

    One noise at two widths differs by a known function of itself, which gives it away.
    """
    first, second = labels_of(1.0), labels_of(1.01)
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.15


def test_other_scores_under_one_release_id_have_another_seal():
    """Bug: a rolled-back disk sealed other scores with the same stream; their difference showed."""
    one, two = np.linspace(0.0, 1.0, 9), np.linspace(0.0, 2.0, 9)
    key = b"k" * 32
    streams = [_sealed(v, key)[2:].view("<u8") ^ v.view("<u8") for v in (one, two)]
    assert (streams[0] != streams[1]).all()
    assert np.array_equal(_sealed(one, key), _sealed(one, key))


def test_a_seal_that_was_changed_is_refused():
    key, release = b"k" * 32, made(Act("values"), "kept/shop/share/0", plan_silent(), 5)
    shut = sealed(release, key)
    assert unsealed(shut, key).tensor.shape == (5,)
    data = bytearray(shut.tensor.data)
    data[-1] ^= 1
    spoilt = shut.tensor.model_copy(update={"data": bytes(data)})
    with pytest.raises(PeerError, match="somebody else"):
        unsealed(shut.model_copy(update={"tensor": spoilt}), key)
