"""fit(X, y, noise_variance=...): noise that is known for each row."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from skswsgp import SWSGPRegressor
from skswsgp.solvers import Natural


def uneven(n=400):
    """Return X, y, the function and the noise variances, of a factor of 10,000."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-3.0, 3.0, size=(n, 1))
    f = 50.0 + 10.0 * np.sin(2.0 * X[:, 0])
    variance = rng.uniform(0.1, 10.0, n) ** 2
    return X, f + np.sqrt(variance) * rng.normal(size=n), f, variance


def test_predictions_equal_those_of_scikit_learn():
    X, y, _, variance = uneven(150)
    kernel = ConstantKernel(100.0, "fixed") * RBF(0.8, "fixed")
    exact = GaussianProcessRegressor(kernel, alpha=variance).fit(X, y - 50.0)
    new = np.linspace(-3.0, 3.0, 40)[:, None]
    mean, std = exact.predict(new, return_std=True)
    model = SWSGPRegressor(
        kernel, normalize_y=False, covariance="full", n_neighbors=150, random_state=0
    )
    model.fit(X, y - 50.0, noise_variance=variance)
    found, square = model.latent_mean_and_variance(new)
    assert_allclose(found, mean, atol=1e-3)
    assert_allclose(np.sqrt(square), std, rtol=1e-3)
    assert_allclose(model.noise_variance_, 1.0 / np.mean(1.0 / variance))


def test_known_noise_teaches_more_than_the_default():
    X, y, f, variance = uneven()
    errors, covered = [], []
    for rows in ({}, {"noise_variance": variance}):
        model = SWSGPRegressor(random_state=0).fit(X, y, **rows)
        mean, square = model.latent_mean_and_variance(X)
        errors.append(np.sqrt(np.mean((mean - f) ** 2)))
        covered.append(np.mean(np.abs(mean - f) < 1.96 * np.sqrt(square)))
    assert errors[1] < 0.6 * errors[0]
    assert covered[1] > 0.85
    unit = model.noise_variance_ * model.y_scale_**2
    assert_allclose(unit, 1.0 / np.mean(1.0 / variance))


def fixed_model():
    kernel = ConstantKernel(100.0, "fixed") * RBF(0.8, "fixed")
    return SWSGPRegressor(
        kernel, normalize_y=False, covariance="full", n_neighbors=80, random_state=0
    )


def exact(X, y, variance):
    """Return mean and variance of the function at -1, 0 and 2.5 for scikit-learn."""
    kernel = ConstantKernel(100.0, "fixed") * RBF(0.8, "fixed")
    model = GaussianProcessRegressor(kernel, alpha=variance).fit(X, y)
    mean, std = model.predict([[-1.0], [0.0], [2.5]], return_std=True)
    return mean, std**2


@pytest.mark.parametrize("case", ["plain", "weights", "copies", "zeros"])
def test_weights_and_copies_divide_known_noise(case):
    X, y, _, variance = uneven(80)
    y, weight, rows = y - 50.0, None, np.arange(80)
    if case == "weights":
        weight = np.random.default_rng(1).uniform(0.5, 8.0, 80)
    if case == "zeros":
        weight = np.where(rows < 20, 0.0, 1.0)
    if case == "copies":
        rows = np.r_[rows, rows[:40]]
    X, y, variance = X[rows], y[rows], variance[rows]
    model = fixed_model().fit(X, y, weight, noise_variance=variance)
    found = model.latent_mean_and_variance([[-1.0], [0.0], [2.5]])
    used = slice(20, 80) if case == "zeros" else slice(None)
    alpha = variance / weight if case == "weights" else variance
    expected = exact(X[used], y[used], alpha[used])
    assert_allclose(found[0], expected[0], rtol=1e-3)
    assert_allclose(found[1], expected[1], rtol=1e-3)


def test_left_out_rows_have_their_own_noise():
    X, y, _, variance = uneven(200)
    model = SWSGPRegressor(predictive="gaussian", random_state=0)
    model.fit(X, y, noise_variance=variance)
    rows = model.leave_one_out_
    precise = variance < np.median(variance)
    for part in (precise, ~precise):
        assert 0.75 < rows.z_score[part].std() < 1.25


def test_predictions_have_the_noise_that_they_are_given():
    X, y, _, variance = uneven()
    model = SWSGPRegressor(predictive="gaussian", random_state=0)
    model.fit(X[:200], y[:200], noise_variance=variance[:200])
    rows = {"noise_variance": variance[200:]}
    _, square = model.latent_mean_and_variance(X[200:])
    std = model.predict(X[200:], return_std=True, **rows)[1]
    assert_allclose(std**2, square + variance[200:])
    lower, upper = model.predict_interval(X[200:], **rows)
    assert 0.9 < np.mean((lower <= y[200:]) & (y[200:] <= upper)) < 0.99
    density = model.log_predictive_density(X[200:], y[200:], **rows)
    assert density.mean() > model.log_predictive_density(X[200:], y[200:]).mean() + 0.25
    draws = model.sample_y(X[200:], 2000, **rows)
    assert_allclose(draws.std(axis=1), std, rtol=0.1)


@pytest.mark.parametrize("least", [1e-9, 1e-30])
def test_a_row_that_is_nearly_exact_harms_no_other(least):
    X, y, f, _ = uneven(120)
    variance = np.full(120, 9.0)
    y = f + 3.0 * np.random.default_rng(5).normal(size=120)
    y[0], variance[0] = f[0], least
    model = SWSGPRegressor(random_state=0).fit(X, y, noise_variance=variance)
    assert np.sqrt(np.mean((model.predict(X) - f) ** 2)) < 1.5


def test_a_warm_start_takes_new_noise():
    X, y, _, variance = uneven(100)
    model = fixed_model().fit(X, y - 50.0, noise_variance=variance)
    model.set_params(warm_start=True).fit(X, y - 50.0, noise_variance=100.0 * variance)
    fresh = fixed_model().fit(X, y - 50.0, noise_variance=100.0 * variance)
    new = [[0.5], [2.0]]
    found, expected = (m.latent_mean_and_variance(new) for m in (model, fresh))
    assert_allclose(found, expected, rtol=1e-4)


def test_bounds_of_learned_noise_are_refused():
    X, y, _, variance = uneven(50)
    model = SWSGPRegressor(random_state=0).fit(X, y, noise_variance=variance)
    with pytest.raises(ValueError, match="noise differs from row to row"):
        model.lower_bound(X, y)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"likelihood": "poisson"}, "likelihood='poisson'"),
        ({"y_transform": "log"}, "y_transform='log'"),
        ({"solver": "adam"}, "solver='adam'"),
        ({"solver": Natural(optimize_inducing=True)}, r"solver=Natural\(.*\)"),
    ],
)
def test_noise_that_cannot_be_used_is_refused(options, said):
    X, y, _, variance = uneven(50)
    with pytest.raises(ValueError, match=f"noise_variance came with {said}: expected"):
        SWSGPRegressor(**options).fit(X, np.round(y), noise_variance=variance)


def test_wrong_noise_is_refused():
    X, y, _, variance = uneven(50)
    with pytest.raises(ValueError, match=r"noise_variance has shape \(49,\): expected"):
        SWSGPRegressor().fit(X, y, noise_variance=variance[:49])
    with pytest.raises(ValueError, match=r"noise_variance holds -1.0: expected a posi"):
        SWSGPRegressor().fit(X, y, noise_variance=np.r_[-1.0, variance[1:]])


def test_new_rows_have_the_mean_of_the_noise():
    X, y, _, _ = uneven(200)
    known = np.where(np.arange(200) % 2, 0.01, 25.0)
    model = SWSGPRegressor(random_state=0, predictive="gaussian")
    model.fit(X, y, noise_variance=known)
    assert_allclose(model._mean_noise_variance * model.y_scale_**2, known.mean())
    std = model.predict(X, return_std=True)[1]
    _, variance = model.latent_mean_and_variance(X)
    assert_allclose(std**2, variance + known.mean())
    assert not hasattr(model.fit(X, y), "_mean_noise_variance")


def test_outputs_of_very_different_sizes_are_refused():
    X, y, _, _ = uneven(60)
    both = np.column_stack([y, 1e5 * y])
    with pytest.raises(ValueError, match="fit a model for each output"):
        SWSGPRegressor().fit(X, both, noise_variance=np.full(60, 0.01))
    with pytest.raises(ValueError, match="fit a model for each output"):
        SWSGPRegressor().fit(X, both, noise_variance=np.full(60, 1e-9))
    similar = np.column_stack([y, 3.0 * y])
    model = SWSGPRegressor(random_state=0)
    model.fit(X, similar, noise_variance=np.full(60, 1e-9))
    assert_allclose(model.noise_variance_, [9e-8, 1e-8], rtol=0.1)


def test_known_noise_has_no_held_out_rows():
    X, y, _, variance = uneven(50)
    with pytest.raises(ValueError, match="noise_variance came with X_val"):
        SWSGPRegressor().fit(X, y, noise_variance=variance, X_val=X, y_val=y)


def test_a_warm_start_forgets_the_mean_of_known_noise():
    X, y, _, variance = uneven(60)
    model = SWSGPRegressor(random_state=0, warm_start=True)
    model.fit(X, y, noise_variance=variance).fit(X, y)
    assert not hasattr(model, "_mean_noise_variance")
