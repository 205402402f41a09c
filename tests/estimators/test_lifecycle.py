"""Warm starts, chunks, early stopping, interrupts and failures."""

import numpy as np
import pytest
from helpers import make
from scipy.stats import norm
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.gaussian_process.kernels import (
    RBF,
)
from small_models import (
    assert_same_bits,
    interrupting,
    natural_model,
    small_data,
    small_model,
    state_of,
)

from skswsgp import SWSGPClassifier, SWSGPRegressor
from skswsgp._fit import encode
from skswsgp.solvers import Adam


def test_warm_start_continues_training():
    X, y = small_data()
    model = small_model(max_iter=40, warm_start=True).fit(X, y)
    first = model.loss_curve_
    Z = model.inducing_points_
    model.set_params(solver__max_iter=5).fit(X, y)
    assert model.n_iter_ == 5
    np.testing.assert_allclose(model.inducing_points_, Z, rtol=0, atol=1e-12)
    drop = first[0] - first[-1]
    assert max(model.loss_curve_) < first[-1] + 0.2 * drop
    cold = clone(model).set_params(warm_start=False).fit(X, y)
    assert cold.loss_curve_[0] > first[-1] + 0.5 * drop


@pytest.mark.parametrize("estimator_class", [SWSGPRegressor, SWSGPClassifier])
def test_partial_fit_respects_weights(estimator_class):
    X, y = small_data(80)
    y = y > 0 if estimator_class is SWSGPClassifier else y
    settings = {"n_inducing": 20, "learn_kernel": False, "random_state": 0}
    weight = np.r_[np.ones(30), np.full(30, 2.0), np.zeros(20)]
    model, other = make(estimator_class, **settings), make(estimator_class, **settings)
    for _ in range(3):
        model.partial_fit(X, y, sample_weight=weight)
        other.partial_fit(X[:60], y[:60], sample_weight=weight[:60])
    np.testing.assert_array_equal(model.inducing_mean_, other.inducing_mean_)
    plain = make(estimator_class, **settings)
    for _ in range(3):
        plain.partial_fit(X[:60], y[:60])
    assert np.abs(plain.inducing_mean_ - model.inducing_mean_).max() > 1e-3


def test_partial_fit_refuses_other_shapes():
    X, y = small_data(60)
    model = natural_model().partial_fit(X, y)
    before = state_of(model)
    with pytest.raises(ValueError, match="features"):
        model.partial_fit(X[:, :1], y)
    with pytest.raises(ValueError, match="y has shape"):
        model.partial_fit(X, np.stack([y, y], axis=1))
    assert state_of(model) == before


def test_fit_discards_earlier_partial_fits():
    X, y = small_data()
    model = natural_model().partial_fit(X[:50], 5 * y[:50])
    assert_same_bits(model.fit(X, y), natural_model().fit(X, y))


def test_early_stopping_holds_rows_out():
    X, y = small_data(300)
    model = small_model(
        early_stopping=True, validation_fraction=0.2, max_iter=60, n_iter_no_change=3
    ).fit(X, y)
    assert len(model.validation_scores_) == model.n_iter_
    assert model.validation_scores_[-1] > model.validation_scores_[0]
    assert model.score(X, y) > 0.8


def test_validation_scores_use_the_weights_of_held_out_rows(monkeypatch, rng):
    split, parts = encode.train_test_split, []

    def recorded(*args, **kwargs):
        parts[:] = split(*args, **kwargs)
        return parts

    monkeypatch.setattr(encode, "train_test_split", recorded)
    X, y = small_data()
    weight = rng.uniform(0.1, 4.0, size=150)
    weight[::3] = 0.0
    how = {"early_stopping": True, "max_iter": 1, "predictive": "gaussian"}
    model = small_model(kernel=RBF(1.0, "fixed"), **how)
    model.fit(X, y, sample_weight=weight)
    held = encode.CheckedRows.of(X, y, weight).by_content().numbers[parts[1]]
    density = norm.logpdf(y[held], *model.predict(X[held], return_std=True))
    expected = np.average(density, weights=weight[held])
    assert model.validation_scores_[0] == pytest.approx(expected, rel=1e-9)
    assert expected != pytest.approx(density.mean(), rel=1e-2)


@pytest.mark.parametrize("Q", [1, 2])
def test_best_epoch_on_validation_data_is_restored(Q):
    X, y = small_data()
    X_val, y_val = small_data(50, seed=1)
    if Q == 2:
        y, y_val = np.stack([y, X[:, 0]], 1), np.stack([y_val, X_val[:, 0]], 1)
    y, y_val = 10 * y + 5, 10 * y_val + 5
    settings = {"learning_rate": 0.5, "n_neighbors": "all"}  # lists stay
    settings["predictive"] = "gaussian"  # as held-out rows are judged
    model = small_model(max_iter=6, **settings).fit(X, y, X_val=X_val, y_val=y_val)
    scores = model.validation_scores_
    assert len(scores) == model.n_iter_ == len(model.loss_curve_) == 6
    assert np.argmax(scores) < 5, "choose a less steady learning rate"
    density = norm.logpdf(y_val, *model.predict(X_val, return_std=True))
    mean_density = density.reshape(50, -1).sum(axis=1).mean()
    assert mean_density == pytest.approx(max(scores), rel=1e-9)


def test_natural_solver_records_validation_scores():
    X, y = small_data(150)
    X_val, y_val = small_data(50, seed=1)
    how = {
        "predictive": "gaussian",
        "covariance": "full",
    }  # as held-out rows are judged
    model = natural_model(**how).fit(X, 10 * y + 5, X_val=X_val, y_val=10 * y_val + 5)
    density = norm.logpdf(10 * y_val + 5, *model.predict(X_val, return_std=True))
    assert model.validation_scores_ == [pytest.approx(density.mean(), rel=1e-9)]
    assert model.n_iter_ == 1


@pytest.mark.usefixtures("few_steps")
@pytest.mark.parametrize(
    ("params", "holds_out"),
    [({"solver": "adam"}, True), ({"optimize_inducing": True}, True), ({}, False)],
    ids=str,
)
def test_auto_holds_rows_out_where_adam_takes_steps(params, holds_out, tune):
    X, y = small_data(150)
    model = natural_model(n_inducing=20, max_iter=1, **params)
    for limit, above in ((149, True), (150, False)):
        tune(holdout_above=limit)
        model.fit(X, y)
        assert (model.validation_scores_ is not None) == (holds_out and above)


def test_training_stops_without_improvement():
    X, y = small_data()
    model = small_model(max_iter=50, tol=100.0, n_iter_no_change=4).fit(X, y)
    assert model.n_iter_ == 5 + 5  # as many epochs for the rate to fall
    model = small_model(max_iter=7, tol=100.0, n_iter_no_change=4).fit(X, y)
    assert model.n_iter_ == 7
    model = small_model(max_iter=50, tol=100.0, n_iter_no_change=4)
    model.fit(X, y, X_val=X, y_val=y)
    assert model.n_iter_ == 5


@pytest.mark.parametrize(
    ("params", "change", "match"),
    [
        ({}, {"y_val": None}, "y_val is missing"),
        ({}, {"X_val": None}, "X_val is missing"),
        ({"early_stopping": False}, {}, "early_stopping=False"),
        ({}, {"X_val": np.zeros((5, 3))}, "features"),
        ({}, {"X_val": np.full((5, 2), np.nan)}, "NaN"),
        ({}, {"y_val": np.zeros(4)}, "inconsistent numbers of samples"),
        ({}, {"y_val": np.zeros((5, 2))}, "y has shape"),
    ],
)
def test_unusable_validation_data_raise(params, change, match):
    X, y = small_data(60)
    validation = {"X_val": X[:5], "y_val": y[:5]} | change
    model = small_model(**params)
    with pytest.raises(ValueError, match=match):
        model.fit(X, y, **validation)
    with pytest.raises(NotFittedError):
        model.predict(X)


def test_fitted_attributes_record_the_training():
    X, y = small_data()
    model = small_model(max_iter=60).fit(X, y)
    assert model.n_iter_ == len(model.loss_curve_) == 60
    assert model.validation_scores_ is None
    assert model.n_features_in_ == 2
    # The recorded bound is an average over the last epoch, in which little changes.
    assert model.lower_bound_ == pytest.approx(model.lower_bound(X, y), abs=0.1 * 150)


@pytest.mark.parametrize("epoch", [1, 3])
@pytest.mark.parametrize("held_out", [False, True])
def test_keyboard_interrupt_leaves_a_usable_model(monkeypatch, epoch, held_out):
    X, y = small_data()
    interrupting(monkeypatch, KeyboardInterrupt(), epoch)
    model = small_model(early_stopping=held_out)
    when = "at its best" if held_out and epoch > 1 else "then"
    message = f"interrupted in epoch {epoch}: the model is kept as it was {when}"
    with pytest.warns(UserWarning, match=message):
        assert model.fit(X, y) is model
    assert model.n_iter_ == len(model.loss_curve_) == epoch - 1
    assert np.all(np.isfinite(model.predict(X, return_std=True)))
    assert np.isfinite(model.lower_bound(X, y))


def test_warning_points_at_the_line_of_the_caller(monkeypatch):
    X, y = small_data(60)
    interrupting(monkeypatch, KeyboardInterrupt(), 1)
    with pytest.warns(UserWarning, match="interrupted") as record:
        small_model().fit(X, y)
    assert record[0].filename == __file__


def test_failed_fit_keeps_the_earlier_model(monkeypatch):
    X, y = small_data(60)
    model = small_model().fit(X, y)
    before = state_of(model)
    interrupting(monkeypatch, RuntimeError("in training"), 2)
    with pytest.raises(RuntimeError, match="in training"):
        model.fit(X + 1, 5 * y)
    assert state_of(model) == before


def test_failed_fit_leaves_a_new_estimator_unfitted(monkeypatch):
    X, y = small_data(60)
    model = small_model()
    before = state_of(model)
    interrupting(monkeypatch, RuntimeError("in training"), 2)
    with pytest.raises(RuntimeError, match="in training"):
        model.fit(X, y)
    assert state_of(model) == before


def test_refused_data_keep_the_earlier_model():
    X, y = small_data(60)
    model = small_model(kernel=RBF([1.0, 1.0])).fit(X, y)
    before = state_of(model)
    with pytest.raises(ValueError, match="length-scales"):
        model.fit(np.c_[X, X[:, 0]], y)
    with pytest.raises(ValueError, match="NaN"):
        model.fit(X, np.where(y > 0, np.nan, y))
    assert state_of(model) == before


class Preset(SWSGPRegressor):
    """A subclass that sets parameters in its own constructor."""

    def __init__(self, n_inducing=10):
        more = {"learn_kernel": False, "n_neighbors": 4, "random_state": 0}
        super().__init__(n_inducing=n_inducing, solver=Adam(max_iter=3), **more)


def test_parameters_that_a_subclass_sets_are_used():
    X, y = small_data(n=60)
    more = {"learn_kernel": False, "max_iter": 3, "n_neighbors": 4, "random_state": 0}
    expected = make(SWSGPRegressor, n_inducing=10, solver="adam", **more).fit(X, y)
    model = Preset().fit(X, y)
    assert model.loss_curve_ == expected.loss_curve_
    assert model.n_neighbors_ == 4
