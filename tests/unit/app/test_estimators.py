"""Estimators beyond scikit-learn's own checks: parties, ledgers, what a fit costs and repeats."""

from __future__ import annotations

import pickle
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

from hdpvfl_mq.errors import RefusedError
from hdpvfl_mq.privacy.accountant import Spent
from hdpvfl_mq.privacy.ledger_store import Ledger
from hdpvfl_mq.privacy.pure import pure_units_of
from schemas.privacy import ReleaseBooked
from tests.lazily import Lazily

base, datasets, selection, pipelines, scaling = (
    Lazily(f"sklearn.{name}")
    for name in ("base", "datasets", "model_selection", "pipeline", "preprocessing")
)
pd = Lazily("pandas")
vfl, columned, fitting = (
    Lazily(name)
    for name in (
        "hdpvfl_mq",
        "hdpvfl_mq.app.estimators.columns",
        "hdpvfl_mq.app.estimators.fitting",
    )
)


pytestmark = pytest.mark.seconds


@pytest.fixture(scope="module")
def people():
    return datasets.make_classification(600, 6, n_informative=4, random_state=1)


@pytest.fixture(scope="module")
def fitted(people):
    return vfl.VFLClassifier(epsilon=8.0, delta=1e-3, random_state=0).fit(*people)


def test_the_joint_model_learns_from_both_parties(people, fitted):
    X, y = people
    assert fitted.score(X, y) > 0.75
    assert fitted.parties_ == ("active", "passive-1")
    proba = fitted.predict_proba(X)
    np.testing.assert_allclose(proba.sum(axis=1), 1.0)
    np.testing.assert_array_equal(fitted.decision_function(X) > 0, proba[:, 1] > 0.5)


def test_coefficients_are_the_model_for_rows_inside_the_ball(people, fitted):
    X, _ = people
    middle = X.mean(axis=0, keepdims=True) + 1e-3 * X.std(axis=0)
    by_hand = middle @ fitted.coef_.T + fitted.intercept_
    np.testing.assert_allclose(by_hand.ravel(), fitted.decision_function(middle), atol=1e-9)
    assert (fitted.coef_std_ > 0.0).all()


def test_disclosed_rows_bring_scores_without_noise(people):
    model = vfl.VFLClassifier(epsilon=1.0, delta=1e-3, disclosed_rows=100, random_state=0).fit(
        *people
    )
    assert all(
        run.models["active"]["manifest"]["method"]["disclosed_rows"] == 100 for run in model.runs_
    )
    assert np.isfinite(model.privacy_["passive-1"]["epsilon"])
    assert model.privacy_["passive-1"]["disclosed_rows"] == 100  # epsilon does not hold for them
    assert model.privacy_["active"]["disclosed_rows"] == 0


def test_pure_epsilons_of_several_runs_add_up():
    """Bug: the cost of a fit left bounded noise out."""
    one = fitting.Spend(
        spent=Spent(pure=(pure_units_of(0.5),)),
        disclosed_rows=0,
        lifetime_epsilon=0.0,
        delta=1e-5,
        noise_std=1.0,
    )
    assert fitting.composed([one, one])["epsilon"] == pytest.approx(1.0, abs=1e-3)


def test_every_party_spends_what_was_asked_and_no_more(fitted):
    for party in fitted.parties_:
        assert 0.0 < fitted.privacy_[party]["epsilon"] <= 8.0
        assert fitted.privacy_[party]["noise_std"] > 0.0
        assert fitted.privacy_[party]["conditional_on_preprocessing"]


def test_a_random_state_repeats_a_fit_and_none_does_not(people):
    X, y = people
    one, same = (vfl.VFLClassifier(random_state=3).fit(X, y).decision_function(X) for _ in range(2))
    np.testing.assert_array_equal(one, same)
    free, other = (vfl.VFLClassifier().fit(X, y).decision_function(X) for _ in range(2))
    assert not np.array_equal(free, other)


def test_columns_by_name_and_a_list_of_frames_give_the_same_parties(people):
    X, y = people
    frame = pd.DataFrame(X, columns=list("abcdef"))
    columns = [["a", "c"], ["b"], ["d", "e", "f"]]
    named = vfl.VFLClassifier(columns=columns, random_state=0).fit(frame, y)
    listed = vfl.VFLClassifier(random_state=0).fit(
        [frame[names].to_numpy() for names in columns], y
    )
    assert named.parties_ == listed.parties_ == ("active", "passive-1", "passive-2")
    parts = [frame[names].to_numpy() for names in columns]
    np.testing.assert_array_equal(named.decision_function(frame), listed.decision_function(parts))


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ([[0, 1]], "one or more passive"),
        ([[0], [0, 1]], "listed twice"),
        ([[0], []], "every party needs at least one"),
        ([[0], ["z"]], "no column named 'z'"),
        ([[0], [9]], "outside the 6 columns"),
    ],
)
def test_wrong_columns_are_named(people, columns, words):
    with pytest.raises(ValueError, match=words):
        vfl.VFLClassifier(columns=columns).fit(*people)


def test_a_loss_for_other_labels_is_refused(people):
    with pytest.raises(ValueError, match="choose one of logistic"):
        vfl.VFLClassifier(loss="poisson").fit(*people)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"guarantee": "sounds"}, "guarantee='sounds': choose one of sound, paper, none"),
        ({"penalty": "l3"}, "penalty='l3': choose one of none, l2"),
        ({"epsilon": 0}, "epsilon: Input should be greater than 0"),
        ({"epsilon": "1"}, "epsilon: Input should be a valid number"),
        ({"delta": 2.0}, "delta: Input should be less than 1"),
        ({"disclosed_rows": 5, "penalty": "l1"}, "has no disclosed_rows; the private model has"),
        ({"disclosed_rows": -1}, "disclosed_rows: Input should be greater"),
        ({"columns": ["a", "b"]}, "give a list for each party"),
    ],
)
def test_a_wrong_parameter_is_one_line_and_never_fits(people, wrong, words):
    with pytest.raises(ValueError, match=words) as caught:
        vfl.VFLClassifier(**wrong).fit(*people)
    assert "\n" not in str(caught.value)


def test_anything_with_the_arrow_interface_has_names():
    """Bug: a relation of DuckDB or a record batch was refused, or had no names."""
    table = pa.table({"a": [1.0, 2.0], "b": [3.0, 4.0]})

    class Stream:
        def __arrow_c_stream__(self, requested_schema=None):
            return table.__arrow_c_stream__(requested_schema)

    for frame in (Stream(), table, table.to_reader(), table.to_batches()[0]):
        whole, parties = columned.joined(frame)
        assert (whole.column_names, parties) == (["a", "b"], None)
    matrix, parties = columned.joined([Stream(), table.to_batches()[0]])
    assert parties == [[0, 1], [2, 3]]
    assert matrix.tolist() == [[1.0, 3.0, 1.0, 3.0], [2.0, 4.0, 2.0, 4.0]]


def test_columns_and_a_list_of_frames_contradict_each_other(people):
    X, y = people
    with pytest.raises(ValueError, match="leave it out"):
        vfl.VFLClassifier(columns=[[0, 1, 2], [3, 4, 5]]).fit([X[:, :3], X[:, 3:]], y)


def test_a_delta_that_permits_showing_a_row_is_warned_of(people):
    with pytest.warns(UserWarning, match="more than 1 / rows"):
        vfl.VFLClassifier(delta=0.01, random_state=0).fit(*people)


def test_another_penalty_than_l2_trains_another_model(people, fitted):
    lasso = vfl.VFLClassifier(penalty="l1", epsilon=8.0, delta=1e-3, random_state=0).fit(*people)
    assert fitted.runs_[0].models["active"]["manifest"]["method"]["kind"] == "private_model"
    assert lasso.runs_[0].models["active"]["manifest"]["method"]["kind"] == "descent"


def test_one_random_state_draws_other_noise_for_other_data(people):
    """The same noise on two folds would cancel in their difference."""
    X, y = people
    halves = [vfl.VFLClassifier(random_state=0).fit(X[i::2], y[i::2]).runs_[0] for i in range(2)]
    runs = {run.models["active"]["manifest"]["run"] for run in halves}
    seeds = {run.models["active"]["manifest"]["seed"] for run in halves}
    assert len(runs) == len(seeds) == 2


def test_several_classes_are_several_charged_runs():
    X, y = datasets.make_classification(
        300, 4, n_informative=4, n_redundant=0, n_classes=3, random_state=0
    )
    model = vfl.VFLClassifier(epsilon=1.0, delta=1e-3, random_state=0).fit(X, y)
    assert model.privacy_["active"]["runs"] == 3
    assert model.privacy_["active"]["epsilon"] > 1.5
    assert model.predict_proba(X).shape == (300, 3)


def test_pickle_and_clone_keep_what_they_should(people, fitted):
    X, _ = people
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.decision_function(X), fitted.decision_function(X))
    assert not hasattr(base.clone(fitted), "runs_")


def test_a_pipeline_and_cross_validation(people):
    X, y = people
    pipeline = pipelines.make_pipeline(
        scaling.StandardScaler(), vfl.VFLClassifier(epsilon=8.0, delta=1e-3)
    )
    assert selection.cross_val_score(pipeline, X, y, cv=3).mean() > 0.65


def test_every_fit_of_a_grid_search_is_charged(people, tmp_path):
    ledger = vfl.LedgerFolder(tmp_path, "customers", epsilon=10.0, delta=1e-3)
    model = vfl.VFLClassifier(delta=1e-3, ledger=ledger)
    search = selection.GridSearchCV(model, {"epsilon": [0.5, 1.0]}, cv=2, error_score="raise").fit(
        *people
    )
    spent = search.best_estimator_.privacy_["active"]["epsilon_lifetime"]
    alone = vfl.VFLClassifier(delta=1e-3, epsilon=1.0).fit(*people).privacy_["active"]["epsilon"]
    assert spent > 1.5 * alone  # two and two folds, and the refit


def test_a_grid_search_with_a_random_state_charges_every_fit_once(people, tmp_path):
    ledger = vfl.LedgerFolder(tmp_path, "customers", epsilon=10.0, delta=1e-3)
    model = vfl.VFLClassifier(delta=1e-3, ledger=ledger, random_state=0)
    search = selection.GridSearchCV(model, {"epsilon": [0.5, 1.0]}, cv=2, error_score="raise").fit(
        *people
    )
    spent = search.best_estimator_.privacy_["active"]["epsilon_lifetime"]
    again = base.clone(search.best_estimator_).fit(*people)  # the same data, noise and bytes
    assert again.privacy_["active"]["epsilon_lifetime"] == spent > 1.5


def test_fits_in_two_processes_take_turns_at_a_ledger(people, tmp_path):
    ledger = vfl.LedgerFolder(tmp_path, "customers", epsilon=10.0, delta=1e-3)
    model = vfl.VFLClassifier(delta=1e-3, ledger=ledger)
    scores = selection.cross_val_score(model, *people, cv=4, n_jobs=2, error_score="raise")
    assert len(scores) == 4


def test_all_classes_of_a_fit_pay_for_one_gram(tmp_path):
    """Bug: every class paid for X'X of the same rows again."""
    X, y = datasets.make_classification(600, 6, n_informative=4, n_classes=3, random_state=1)
    ledger = vfl.LedgerFolder(tmp_path, "customers", epsilon=10.0, delta=1e-3)
    model = vfl.VFLClassifier(delta=1e-3, ledger=ledger).fit(X, y)
    assert len(model.classes_) == 3
    opened = Ledger.open(ledger.file("passive-1"), "passive-1")
    booked = [entry.event for _, entry in opened.entries() if isinstance(entry, ReleaseBooked)]
    kinds = Counter(event.release_id.split("/")[2] for event in booked)
    assert kinds == {"moments": 3, "gram": 1, "share": 3}
    spent = sum(event.mu2_units for event in booked)
    assert opened.books.held("customers").mu2_units == spent  # the rest of each reserve is free
    opened.close_file()
    grams = [run.grams["passive-1"] for run in model.runs_]
    assert grams[0] == grams[1] == grams[2]


def test_a_fit_with_other_labels_of_another_class_may_repeat_its_random_state(tmp_path):
    """Bug: class 1 had the same release ids with the X'X of another first class, and failed."""
    X, y = datasets.make_classification(300, 6, n_informative=4, n_classes=3, random_state=1)
    ledger = vfl.LedgerFolder(tmp_path, "customers", epsilon=30.0, delta=1e-3)
    corrected = y.copy()
    corrected[np.flatnonzero(y == 0)[:5]] = 2  # class 1 has the same people
    for labels in (y, y, corrected):
        vfl.VFLClassifier(delta=1e-3, ledger=ledger, random_state=0).fit(X, labels)
    opened = Ledger.open(ledger.file("passive-1"), "passive-1")
    booked = [entry.event for _, entry in opened.entries() if isinstance(entry, ReleaseBooked)]
    opened.close_file()
    kinds = Counter(event.release_id.split("/")[2] for event in booked)
    assert kinds == {"moments": 6, "gram": 2, "share": 6}  # a fit that is repeated is free


def test_a_fit_beyond_the_cap_is_refused_and_says_why(people, tmp_path):
    ledger = vfl.LedgerFolder(tmp_path, "customers", epsilon=1.5, delta=1e-3)
    model = vfl.VFLClassifier(delta=1e-3, ledger=ledger).fit(*people)
    with pytest.raises(RefusedError, match="customers"):
        model.fit(*people)


@pytest.mark.parametrize("loss", ["least_squares", "huber", "poisson", "gamma"])
def test_regressions_give_labels_in_their_own_unit(loss):
    X, y = datasets.make_regression(500, 4, noise=5.0, random_state=0)
    y = np.round(np.exp(y / y.std())) + 1.0 if loss in ("poisson", "gamma") else y * 7.0 + 300.0
    model = vfl.VFLRegressor(loss=loss, epsilon=10.0, delta=1e-3, random_state=0).fit(X, y)
    found = model.predict(X)
    assert abs(found.mean() - y.mean()) < 0.5 * y.std()
    assert np.corrcoef(found, y)[0, 1] > 0.4
