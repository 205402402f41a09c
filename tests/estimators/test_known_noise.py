"""fit(X, y, noise_variance=...): noise that is known for each row."""

import numpy as np
import pytest
from helpers import ADAM
from numpy.testing import assert_allclose
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from skswsgp import SWSGPRegressor


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


def test_weights_divide_known_noise():
    X, y, _, variance = uneven(100)
    weight = np.random.default_rng(1).uniform(0.5, 2.0, 100)
    options = {"init": "default", "random_state": 0}
    weighted = SWSGPRegressor(**options)
    weighted.fit(X, y, sample_weight=weight, noise_variance=variance)
    divided = SWSGPRegressor(**options).fit(X, y, noise_variance=variance / weight)
    # weights are relative to their mean, and y is standardised with them
    change = weighted.latent_mean_and_variance(X)[0] - divided.predict(X)
    assert np.abs(change).max() < 0.5


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"likelihood": "poisson"}, "likelihood='poisson'"),
        ({"y_transform": "log"}, "y_transform='log'"),
        (ADAM, "Adam, which learns the noise,"),
        ({"optimize_inducing": True}, "Adam, which learns the noise,"),
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
