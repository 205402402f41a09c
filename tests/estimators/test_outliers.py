"""SWSGPRegressor(likelihood="student_t"): outliers have little say."""

import numpy as np
import pytest
from helpers import ADAM, make
from numpy.testing import assert_allclose, assert_array_equal
from scipy import stats

from skswsgp import SWSGPRegressor
from skswsgp._compiled.special import noisy_student_log_density
from skswsgp._rows.statistics import robust_mean_and_scale
from skswsgp.metrics import pinball
from skswsgp.noise import StudentNoise
from skswsgp.noise.robust_start import fit_tails

SOLVERS = {"natural": {}, "adam": ADAM | {"learn_kernel": True, "n_inducing": 40}}


def with_outliers(n=600):
    """Return X, y and the function: heavy tails, and 5 % of outliers."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-3.0, 3.0, size=(n, 1))
    f = np.sin(2.0 * X[:, 0])
    y = f + 0.2 * rng.standard_t(4.0, n)
    y[rng.permutation(n)[: n // 20]] += rng.normal(0.0, 20.0, n // 20)
    return X, y, f


@pytest.mark.parametrize(
    "options",
    [
        pytest.param(SOLVERS["natural"], id="natural"),
        pytest.param(SOLVERS["adam"], id="adam", marks=pytest.mark.full),
    ],
)
def test_outliers_do_not_move_the_function(options):
    X, y, f = with_outliers()
    train, test = slice(0, 400), slice(400, 600)
    errors, densities = [], []
    for likelihood in ("gaussian", "student_t"):
        model = make(SWSGPRegressor, likelihood=likelihood, random_state=0, **options)
        model.fit(X[train], y[train])
        errors.append(np.sqrt(np.mean((model.predict(X[test]) - f[test]) ** 2)))
        densities.append(model.log_predictive_density(X[test], y[test]).mean())
    assert errors[1] < min(0.5 * errors[0], 0.12)
    assert densities[1] > densities[0] + 0.2
    noise = np.sqrt(model.noise_variance_) * model.y_scale_
    assert 0.1 < noise < 0.3  # the truth is 0.2
    lower, upper = model.predict_interval(X[test], 0.9)
    assert 0.85 < np.mean((lower <= y[test]) & (y[test] <= upper)) < 0.98


@pytest.mark.parametrize("freedom", [2.1, 5.0, 300.0])
def test_quantiles_have_their_probabilities(freedom, rng):
    mean, variance = rng.normal(size=(2, 300, 2))  # more rows than a block has
    noise, variance = np.array([0.5, 1e-6]), variance**2
    law = StudentNoise(mean, variance, noise, np.array([freedom, 4.0]))
    levels = np.array([1e-9, 0.01, 0.5, 0.7, 0.999])
    quantiles = law.quantiles(levels)
    for q in range(2):
        found = [law.cdf(q, values) for values in quantiles[:, q].T]
        assert_allclose(np.transpose(found), np.tile(levels, (300, 1)), rtol=1e-10)
    far = law.quantiles([0.0, 1e-300, 1e-200, 1e-9])
    assert np.isneginf(far[..., 0]).all()
    assert (np.diff(far) > 0.0).all()
    assert law.quantiles([]).shape == (300, 2, 0)
    rows = np.array_split(np.arange(300), 50)
    pieces = [StudentNoise(mean[i], variance[i], noise, law[3]) for i in rows]
    pieces = [piece.quantiles(levels[1:]) for piece in pieces]
    assert_array_equal(quantiles[..., 1:], np.concatenate(pieces))
    sure = StudentNoise(mean, 0.0 * mean, noise, np.array([freedom, 4.0]))
    found = sure.quantiles(levels[1:])[:, 0] - mean[:, :1]
    spread = np.sqrt(0.5) * stats.t(freedom).ppf(levels[1:])
    assert_allclose(found, np.tile(spread, (300, 1)), rtol=1e-5, atol=1e-12)


@pytest.mark.slow  # integrates many laws
def test_law_is_student_t_noise_around_a_gaussian_function():
    X, y, _ = with_outliers(300)
    model = SWSGPRegressor(likelihood="student_t", random_state=0).fit(X, y)
    assert not hasattr(model, "predictive_law_")
    new = np.array([[0.3], [2.9], [30.0]])  # the last knows nothing of f
    mean, variance = model.latent_mean_and_variance(new)
    scale = np.sqrt(model.noise_variance_) * model.y_scale_
    noise = stats.t(model.likelihood_shape_[0], scale=scale)
    std = model.predict(new, return_std=True)[1]
    assert_allclose(std, np.sqrt(variance + noise.var()))
    quantiles = model.predict(new, quantiles=[0.05, 0.6])
    at = quantiles[:, 1]
    density = np.exp(model.log_predictive_density(new, at))
    crps = model._crps(new, at)
    for i in range(3):
        f = mean[i] + np.sqrt(variance[i]) * np.linspace(-8.0, 8.0, 20_001)
        weight = stats.norm.pdf(np.linspace(-8.0, 8.0, 20_001))
        weight /= weight.sum()
        assert_allclose(weight @ noise.cdf(quantiles[i, 0] - f), 0.05, rtol=1e-4)
        assert_allclose(weight @ noise.cdf(at[i] - f), 0.6, rtol=1e-4)
        assert_allclose(density[i], weight @ noise.pdf(at[i] - f), rtol=1e-4)
    levels = (np.arange(100) + 0.5) / 100
    losses = pinball(at[:2], model.predict(new[:2], quantiles=levels), levels)
    assert_allclose(2.0 * losses, crps[:2].mean(), rtol=1e-3)


@pytest.mark.usefixtures("few_steps")
def test_draws_and_covariances_have_noise_of_their_own():
    X, y, _ = with_outliers(300)
    model = SWSGPRegressor(likelihood="student_t", likelihood_shape=8.0, random_state=0)
    model.fit(X, y)
    new = np.array([[0.3], [0.35]])
    cov = model.predict(new, return_cov=True)[1]
    assert_allclose(np.sqrt(np.diag(cov)), model.predict(new, return_std=True)[1])
    draws = model.sample_y(new, 2000, random_state=0)
    assert_allclose(np.cov(draws), cov, rtol=0.1, atol=0.02 * cov[0, 0])


@pytest.mark.parametrize("freedom", [2.05, 4.0, 200.0])
def test_density_equals_that_of_scipy_without_a_variance(freedom):
    z, zero = np.array([0.0, 0.7, 3.0, 30.0, 1e6]), np.zeros(5)
    found = noisy_student_log_density(zero, zero + 1e-12, 0.2 * z, 0.04, freedom)
    expected = stats.t.logpdf(z, freedom) - np.log(0.2)
    assert_allclose(found, expected, rtol=1e-5)


def test_degrees_of_freedom_may_be_given():
    X, y, _ = with_outliers(200)
    model = SWSGPRegressor(likelihood="student_t", likelihood_shape=6.0, random_state=0)
    assert_array_equal(model.fit(X, y).likelihood_shape_, [6.0])
    assert_array_equal(
        model.set_params(learn_kernel=False).fit(X, y).likelihood_shape_, [6.0]
    )


def test_any_outlier_can_be_fitted():
    X, y, f = with_outliers(300)
    for size in (1e9, 1e15):
        y[:3] = size, -size, size
        model = SWSGPRegressor(likelihood="student_t", random_state=0).fit(X, y)
        assert np.sqrt(np.mean((model.predict(X[3:]) - f[3:]) ** 2)) < 0.05
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


@pytest.mark.usefixtures("few_steps")
def test_outliers_of_an_output_leave_the_others_alone(rng):
    X = rng.uniform(-2.0, 2.0, size=(500, 2))
    f = np.column_stack([np.sin(2.0 * X[:, 0]) + X[:, 1], np.cos(2.0 * X[:, 1])])
    y = f + 0.1 * rng.normal(size=f.shape)
    y[:3, 0] = 1e9
    model = SWSGPRegressor(likelihood="student_t", random_state=0).fit(X[:300], y[:300])
    error = np.sqrt(np.mean((model.predict(X[300:]) - f[300:]) ** 2, axis=0))
    assert error.max() < 0.06  # errors are 1.2 and 0.8 with the mean of precisions


@pytest.mark.parametrize("freedom", [2.5, 8.0, 100.0])
def test_tails_of_known_errors_are_found(freedom):
    rng = np.random.default_rng(0)
    variance = rng.uniform(0.0, 0.01, size=20_000)
    errors = np.sqrt(0.04 + variance) * rng.standard_t(freedom, 20_000)
    start, bounds = (0.2, 4.0), (2.05, 200.0)
    found = fit_tails(errors**2, variance, np.ones(20_000), start, bounds)
    assert_allclose(found[0], 0.04, rtol=0.05)
    assert_allclose(1.0 / found[1], 1.0 / freedom, atol=0.02)


def test_no_rows_are_left_out():
    X, y, _ = with_outliers(60)
    model = SWSGPRegressor(likelihood="student_t", learn_kernel=False).fit(X, y)
    assert not hasattr(model, "leave_one_out_")


def test_center_and_scale_count_weights():
    rng = np.random.default_rng(0)
    y, weight = rng.normal(size=(50, 2)), rng.integers(1, 4, size=50)
    found = robust_mean_and_scale(y, weight)
    copies = robust_mean_and_scale(np.repeat(y, weight, axis=0), np.ones(weight.sum()))
    assert_allclose(found, copies, atol=0.1)
    light = np.where(np.arange(50) < 40, 1.0, 1e-6)
    shifted = y + 100.0 * (light < 1.0)[:, None]
    few = robust_mean_and_scale(y[:40], np.ones(40))
    assert_allclose(robust_mean_and_scale(shifted, light)[0], few[0], atol=0.1)


def test_another_shape_is_refused_by_a_warm_start():
    X, y, _ = with_outliers(60)
    model = SWSGPRegressor(likelihood="student_t", learn_kernel=False, warm_start=True)
    model.fit(X, y).set_params(likelihood_shape=50.0)
    with pytest.raises(ValueError, match=r"likelihood_shape=50.0 for a model .* with"):
        model.fit(X, y)
