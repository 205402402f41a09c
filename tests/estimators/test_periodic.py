"""A periodic kernel in all that an estimator does."""

import pickle

import numpy as np
import pytest
from helpers import make
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, ExpSineSquared

from skswsgp import SWSGPClassifier, SWSGPRegressor
from skswsgp.baselines import NearestNeighborGPRegressor
from skswsgp.kernels import OnColumns

N = 240
TREND, SEASON = ConstantKernel(0.5) * RBF(6.0), ExpSineSquared(1.2, periodicity=1.5)
KERNEL = TREND + 1.5 * SEASON
FIXED = {
    "kernel": KERNEL,
    "learn_kernel": False,
    "initial_noise": 0.05,
    "random_state": 0,
    "predictive": "gaussian",
}


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    t = rng.uniform(0.0, 12.0, size=N)
    wave = np.sin(2.0 * np.pi * t / 1.5)
    return t[:, None], 0.2 * t + wave + np.abs(wave) + 0.2 * rng.normal(size=N)


def exact_model(model, X, y):
    """Return scikit-learn's Gaussian process of a fitted model."""
    noise = model.noise_variance_
    exact = GaussianProcessRegressor(model.kernel_, alpha=noise, optimizer=None)
    return exact.fit(X, (y - model.y_mean_) / model.y_scale_)


@pytest.mark.parametrize(
    ("dtype", "atol"),
    [("float64", 1e-5), pytest.param("float32", 2e-3, marks=pytest.mark.slow)],
)
def test_all_neighbors_give_the_gaussian_process_of_scikit_learn(dtype, atol, data):
    model = make(SWSGPRegressor, **FIXED, n_neighbors=N, dtype=dtype).fit(*data)
    X = np.linspace(-3.0, 15.0, 50)[:, None]
    mean, std = model.predict(X, return_std=True)
    expected, expected_std = exact_model(model, *data).predict(X, return_std=True)
    scale = model.y_scale_
    assert_allclose(mean, model.y_mean_ + scale * expected, atol=atol)
    total = np.sqrt(expected_std**2 + model.noise_variance_)
    assert_allclose(std, scale * total, atol=atol)


def test_nearest_points_are_those_of_largest_covariance(data):
    X, y = data
    far = np.array([[14.25], [60.0]])  # beyond all rows, but in a known season
    model = make(
        SWSGPRegressor,
        **FIXED | {"kernel": 1.5 * SEASON},
        n_neighbors=30,
        covariance="diag",
    ).fit(X, y)
    expected = exact_model(model, X, y).predict(far)
    mean = model.predict(far, n_neighbors=30)
    assert_allclose(mean, model.y_mean_ + model.y_scale_ * expected, atol=0.1)


def test_means_from_all_rows(data, tune):
    tune(
        most_neighbors=16, least_neighbors=16, mean_tolerance=1e-9,
        mean_global_points=30, mean_cell_work=0.5, dense_rows=0,
    )  # fmt: skip
    model = make(SWSGPRegressor, **FIXED, n_neighbors="all").fit(*data)
    assert model.alpha_.shape == (N,)
    X = np.linspace(-3.0, 15.0, 50)[:, None]
    expected = exact_model(model, *data).predict(X)
    assert_allclose(model.predict(X), model.y_mean_ + model.y_scale_ * expected, 1e-5)


def test_slopes_and_their_deviations_are_quotients(data):
    step = 1e-4
    model = make(SWSGPRegressor, **FIXED, n_neighbors=N).fit(*data)
    X = np.array([[0.3], [4.0], [7.7]])
    gradient, std = model.predict_gradient(X, return_std=True)
    for x, slope, deviation in zip(X, gradient, std, strict=True):
        mean, cov = model.predict(np.stack([x + step, x - step]), return_cov=True)
        assert slope == pytest.approx((mean[0] - mean[1]) / (2 * step), rel=1e-4)
        cov -= model.noise_variance_ * model.y_scale_**2 * np.eye(2)
        variance = (cov[0, 0] + cov[1, 1] - 2 * cov[0, 1]) / (2 * step) ** 2
        assert deviation == pytest.approx([np.sqrt(variance)], rel=0.02)


def test_draws_of_functions_have_the_law_of_the_joint_prediction(data):
    model = make(SWSGPRegressor, **FIXED, n_neighbors=N).fit(*data)
    X = np.array([[0.3], [5.0], [13.0], [13.5], [14.5]])
    mean, cov = model.predict(X, return_cov=True)
    cov -= model.noise_variance_ * model.y_scale_**2 * np.eye(len(X))
    draws = model.sample_f(X, 2000)
    std = np.sqrt(np.diag(cov))
    assert_allclose(draws.mean(axis=1), mean, atol=5 * std.max() / np.sqrt(2000))
    assert_allclose(draws.std(axis=1), std, rtol=0.05)
    far = slice(2, None)  # correlations are within 0.03 far from the data
    correlation = (cov / np.outer(std, std))[far, far]
    assert_allclose(np.corrcoef(draws[far]), correlation, atol=0.1)


@pytest.mark.parametrize(
    "model",
    [
        SWSGPRegressor(KERNEL, random_state=0),
        pytest.param(
            SWSGPRegressor(KERNEL, random_state=0, dtype="float32"),
            marks=pytest.mark.slow,
        ),
        NearestNeighborGPRegressor(KERNEL, random_state=0),
    ],
    ids=["float64", "float32", "nearest"],
)
def test_a_season_is_continued_by_the_learned_kernel(model, data):
    model = clone(model).fit(*data)
    t = np.linspace(12.0, 15.0, 60)
    wave = np.sin(2.0 * np.pi * t / 1.5)
    mean, std = model.predict(t[:, None], return_std=True)
    error = mean - 0.2 * t - wave - np.abs(wave)
    assert np.std(error) < 0.25
    assert np.mean(np.abs(error) < 2.0 * std) > 0.9
    assert model.kernel_.k2.k2.periodicity == pytest.approx(1.5, abs=0.01)


def test_fixed_parameters_stay(data):
    season = ExpSineSquared(1.2, 1.5, "fixed", "fixed")
    model = SWSGPRegressor(TREND + season, random_state=0).fit(*data)
    assert model.kernel_.k2 == season
    assert model.kernel_.k1 != TREND


def test_classes_and_importances(data):
    X, _ = data
    X = np.column_stack([X, np.random.default_rng(1).normal(size=N)])
    labels = np.sin(2.0 * np.pi * X[:, 0] / 1.5) > 0.0
    season = OnColumns(SEASON, [0])
    model = SWSGPClassifier(season, random_state=0).fit(X, labels)
    assert model.score(X + np.array([3.0, 0.0]), labels) > 0.95
    restored = pickle.loads(pickle.dumps(model))
    assert_array_equal(restored.predict_proba(X), model.predict_proba(X))
    assert_array_equal(model.feature_importances_, [1.0, 0.0])


def test_a_stream(data):
    X, y = data
    sizes = {"n_inducing": 40, "n_neighbors": 20}
    model = SWSGPRegressor(KERNEL, **sizes, random_state=0)
    for rows in np.array_split(np.arange(len(X)), 3):
        model.partial_fit(X[rows], y[rows])
    assert model.score(X, y) > 0.9
