"""SWSGPRegressor(likelihood="student_t"): outliers have little say."""

import numpy as np
import pytest
from helpers import ADAM
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats

from skswsgp import SWSGPRegressor
from skswsgp._initialization.robust_start import fit_tails

SOLVERS = {"natural": {}, "adam": ADAM | {"init": "local", "n_inducing": 40}}


def with_outliers(n=600):
    """Return X, y and the function: heavy tails, and 5 % of outliers."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-3.0, 3.0, size=(n, 1))
    f = np.sin(2.0 * X[:, 0])
    y = f + 0.2 * rng.standard_t(4.0, n)
    y[rng.permutation(n)[: n // 20]] += rng.normal(0.0, 20.0, n // 20)
    return X, y, f


@pytest.mark.parametrize("options", SOLVERS.values(), ids=SOLVERS)
def test_outliers_do_not_move_the_function(options):
    X, y, f = with_outliers()
    train, test = slice(0, 400), slice(400, 600)
    errors, densities = [], []
    for likelihood in ("gaussian", "student_t"):
        model = SWSGPRegressor(likelihood=likelihood, random_state=0, **options)
        model.fit(X[train], y[train])
        errors.append(np.sqrt(np.mean((model.predict(X[test]) - f[test]) ** 2)))
        densities.append(model.log_predictive_density(X[test], y[test]).mean())
    assert errors[1] < min(0.5 * errors[0], 0.12)
    assert densities[1] > densities[0] + 0.2
    noise = np.sqrt(model.noise_variance_) * model.y_scale_
    assert 0.1 < noise < 0.3  # the truth is 0.2
    lower, upper = model.predict_interval(X[test], 0.9)
    assert 0.85 < np.mean((lower <= y[test]) & (y[test] <= upper)) < 0.98


def test_law_is_a_student_t_of_the_learned_numbers():
    X, y, _ = with_outliers(300)
    model = SWSGPRegressor(likelihood="student_t", random_state=0).fit(X, y)
    assert not hasattr(model, "predictive_law_")
    mean, variance = model.latent_mean_and_variance(X)
    scale = np.sqrt(variance + model.noise_variance_ * model.y_scale_**2)
    law = stats.t(model.likelihood_shape_[0], mean, scale)
    assert_allclose(model.log_predictive_density(X, y), law.logpdf(y))
    assert_allclose(model.predict_quantiles(X, 0.9), law.ppf(0.9))
    assert_allclose(model.predict(X, return_std=True)[1], law.std())


def test_degrees_of_freedom_may_be_given():
    X, y, _ = with_outliers(200)
    model = SWSGPRegressor(likelihood="student_t", likelihood_shape=6.0, random_state=0)
    assert_array_equal(model.fit(X, y).likelihood_shape_, [6.0])
    assert_array_equal(
        model.set_params(init="default").fit(X, y).likelihood_shape_, [6.0]
    )


def test_any_outlier_can_be_fitted():
    X, y, f = with_outliers(300)
    y[:3] = 1e9, -1e9, 1e9
    model = SWSGPRegressor(likelihood="student_t", random_state=0).fit(X, y)
    assert np.sqrt(np.mean((model.predict(X[3:]) - f[3:]) ** 2)) < 0.15
    alone = SWSGPRegressor(likelihood="student_t", random_state=0).fit(X[:1], y[:1])
    assert np.isfinite(alone.predict(X)).all()


def test_outputs_have_their_own_tails():
    X, y, f = with_outliers(400)
    light = f + 0.2 * np.random.default_rng(1).normal(size=400)
    both = np.column_stack([y, light])
    model = SWSGPRegressor(likelihood="student_t", random_state=0).fit(X, both)
    assert model.likelihood_shape_[0] < 3.0 < model.likelihood_shape_[1]
    assert np.sqrt(np.mean((model.predict(X) - f[:, None]) ** 2)) < 0.1
    assert model.log_predictive_density(X, both).shape == (400, 2)


@pytest.mark.parametrize("freedom", [2.5, 8.0, 100.0])
def test_tails_of_known_errors_are_found(freedom):
    rng = np.random.default_rng(0)
    variance = rng.uniform(0.0, 0.01, size=20_000)
    errors = np.sqrt(0.04 + variance) * rng.standard_t(freedom, 20_000)
    start, bounds = (0.2, 4.0), (2.05, 200.0)
    found = fit_tails(errors**2, variance, np.ones(20_000), start, bounds)
    assert_allclose(found[0], 0.04, rtol=0.05)
    assert_allclose(1.0 / found[1], 1.0 / freedom, atol=0.02)


def test_leave_one_out_is_refused():
    X, y, _ = with_outliers(60)
    model = SWSGPRegressor(likelihood="student_t", init="default").fit(X, y)
    with pytest.raises(
        ValueError, match="leave_one_out with likelihood='student_t': e"
    ):
        model.leave_one_out(X, y)
