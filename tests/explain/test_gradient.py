"""Derivatives of the latent functions, against difference quotients."""

import numpy as np
import pytest
from helpers import make
from numpy.testing import assert_allclose
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, DotProduct, Matern

from skswsgp import SWSGPClassifier, SWSGPRegressor
from skswsgp.kernels import ArcCosine

N, STEP = 60, 1e-4
KERNELS = [
    ConstantKernel(1.5) * Matern([0.8, 1.5], nu=2.5),
    ConstantKernel(1.5) * RBF(1.0),
    Matern(1.0, nu=1.5) + DotProduct(0.5),
]


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, 2))
    return X, np.sin(2 * X[:, 0]) + X[:, 1] + 0.1 * rng.normal(size=N)


def around(x, d):
    """Return the rows x + STEP e_d and x - STEP e_d."""
    shift = STEP * np.eye(len(x))[d]
    return np.stack([x + shift, x - shift])


@pytest.mark.matrix
@pytest.mark.parametrize("kernel", KERNELS, ids=str)
@pytest.mark.parametrize("covariance", ["diag", "full"])
def test_all_rows_as_neighbors(kernel, covariance, data, rng, tune):
    """No neighbour enters or leaves, so quotients of predictions are derivatives."""
    tune(n_draws=20)
    how = {"covariance": covariance, "predictive": "gaussian", "learn_kernel": False}
    model = make(SWSGPRegressor, kernel, n_neighbors=N, random_state=0, **how)
    model.fit(data[0], 5 * data[1] + 3)
    X = rng.normal(size=(4, 2))
    gradient, std = model.predict_gradient(X, return_std=True)
    assert gradient.shape == std.shape == (4, 2)
    assert_allclose(gradient, model.predict_gradient(X), rtol=1e-12)
    noise = model.noise_variance_ * model.y_scale_**2 * np.eye(2)
    for i, x in enumerate(X):
        for d in range(2):
            mean, cov = model.predict(around(x, d), return_cov=True)
            slope = (mean[0] - mean[1]) / (2 * STEP)
            assert gradient[i, d] == pytest.approx(slope, rel=1e-4, abs=1e-4)
            cov -= noise
            variance = (cov[0, 0] + cov[1, 1] - 2 * cov[0, 1]) / (2 * STEP) ** 2
            assert std[i, d] == pytest.approx(np.sqrt(variance), rel=0.02)


@pytest.mark.parametrize("learn_map", [False, True])
def test_a_map_and_outputs(learn_map, data, rng):
    X, y = data
    Y = np.stack([y, -3 * y + X[:, 0]], axis=1)
    model = SWSGPRegressor(learn_map=learn_map, n_neighbors=20, random_state=0).fit(
        X, Y
    )
    rows = X[:3] + 0.01
    gradient, std = model.predict_gradient(rows, return_std=True)
    assert gradient.shape == std.shape == (3, 2, 2)
    for i, x in enumerate(rows):
        for d in range(2):
            mean, _ = model.latent_mean_and_variance(around(x, d))
            slope = (mean[0] - mean[1]) / (2 * STEP)
            assert_allclose(gradient[i, :, d], slope, rtol=0.02, atol=0.02)
    assert (std > 0).all()
    # a column of X in other units
    scaled = SWSGPRegressor(learn_map=learn_map, n_neighbors=20, random_state=0).fit(
        X * [1, 8], Y
    )
    other = scaled.predict_gradient(rows * [1, 8], return_std=True)
    assert_allclose(other[0], gradient / [1, 8], rtol=0.05, atol=0.01)
    assert_allclose(other[1], std / [1, 8], rtol=0.05, atol=0.01)


def test_the_slope_of_a_line_is_known_with_its_error(rng):
    X = rng.uniform(-1, 1, size=(400, 1))
    y = 2 * X[:, 0] + 0.3 * rng.normal(size=400)
    model = SWSGPRegressor(RBF(2.0), random_state=0).fit(X, y)
    gradient, std = model.predict_gradient([[0.0], [0.3]], return_std=True)
    assert (np.abs(gradient - 2) < 4 * std).all()
    assert (std < 0.5).all()


def test_the_number_of_neighbors(data, rng):
    model = SWSGPRegressor(n_neighbors=9, random_state=0).fit(*data)
    X = rng.normal(size=(4, 2))
    gradient = model.predict_gradient(X, n_neighbors=N)
    for i, x in enumerate(X):
        mean, _ = model.latent_mean_and_variance(around(x, 0), n_neighbors=N)
        slope = (mean[0] - mean[1]) / (2 * STEP)
        assert gradient[i, 0] == pytest.approx(slope, rel=1e-3, abs=1e-3)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_classes(n_classes, data):
    X, y = data
    labels = np.digitize(y, np.quantile(y, np.arange(1, n_classes) / n_classes))
    how = {"n_inducing": 20, "n_neighbors": 20, "learn_kernel": False}
    model = SWSGPClassifier(**how, random_state=0)
    gradient, std = model.fit(X, labels).predict_gradient(X[:5], return_std=True)
    shape = (5, 2) if n_classes == 2 else (5, 3, 2)
    assert gradient.shape == std.shape == shape
    mean, _ = model.latent_mean_and_variance(around(X[0], 1))
    slope = (mean[0] - mean[1]) / (2 * STEP)
    assert_allclose(gradient[0, ..., 1], slope, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("kernel", [Matern(1.0, nu=0.5), ArcCosine(order=0)], ids=str)
def test_rough_functions_have_no_derivative(kernel, data):
    model = SWSGPRegressor(kernel, n_inducing=20, random_state=0).fit(*data)
    assert np.isfinite(model.predict_gradient(data[0][:4] + 0.01)).all()
    with pytest.raises(ValueError, match="have no derivative"):
        model.predict_gradient(data[0], return_std=True)
