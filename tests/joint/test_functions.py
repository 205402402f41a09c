"""Predictions of several rows together, and draws of functions."""

import numpy as np
import pytest
from helpers import DTYPES, make
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import norm
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import (
    RBF,
    ConstantKernel,
    DotProduct,
    Matern,
    WhiteKernel,
)

from skswsgp import SWSGPClassifier, SWSGPRegressor

KERNEL = ConstantKernel(1.5, "fixed") * Matern([0.8, 1.5], "fixed", nu=2.5)
FIXED = {"kernel": KERNEL, "learn_kernel": False, "learn_map": False, "random_state": 0}
FIXED |= {"predictive": "gaussian"}  # the law of the process itself
N = 120


def make_rows(rng, n=N, Q=0):
    X = rng.normal(size=(n, 2))
    y = np.sin(2 * X[:, 0]) + X[:, 1] + 0.1 * rng.normal(size=n)
    return X, np.stack([3 * y + 1, -y], axis=1) if Q else y


@pytest.fixture(scope="module")
def data():
    return make_rows(np.random.default_rng(0))


@pytest.fixture(scope="module")
def model(data):
    return make(SWSGPRegressor, **FIXED, n_neighbors=9, covariance="diag").fit(*data)


def dense_covariance(model, X):
    """Return the covariance of f, standardised, of the formula in `joint`."""
    Z, kernel = model.inducing_points_, model.kernel_
    K, K_xz, A = kernel(Z), kernel(X, Z), np.zeros((len(X), len(Z)))
    K += model._jitter * np.diag(K).mean() * np.eye(len(Z))
    for k, a in zip(K_xz, A, strict=True):
        w = np.argsort(-k)[: model.n_neighbors_]
        a[w] = np.linalg.solve(K[np.ix_(w, w)], k[w])
    factor = model._factor_of_covariance()
    S = model.inducing_covariance_ if factor is None else factor[:, :, 0]
    S = S @ S.T if S.ndim == 2 else np.diag(S)
    cross = A @ K_xz.T
    C = A @ S @ A.T + kernel(X) - cross - cross.T + A @ K @ A.T
    if factor is None:
        return C
    _, variance = model.latent_mean_and_variance(X)  # those of near sites
    root = np.sqrt(variance / model.y_scale_**2 / np.diag(C))
    return root[:, None] * C * root


@pytest.mark.parametrize("covariance", ["auto", "diag", "draws", "full"])
@pytest.mark.parametrize("H", [9, N])
def test_covariance_is_that_of_the_formula(covariance, H, data, rng):
    how = {"covariance": covariance, "n_neighbors": H}
    model = make(SWSGPRegressor, **FIXED, **how).fit(*data)
    X = np.concatenate([data[0][:3], rng.normal(size=(20, 2))])
    mean, cov = model.predict(X, return_cov=True)
    noise = model.noise_variance_ * np.eye(len(X))
    expected = (dense_covariance(model, X) + noise) * model.y_scale_**2
    assert_allclose(cov, expected, rtol=1e-6, atol=1e-8)
    assert_array_equal(cov, cov.T)
    assert np.linalg.eigvalsh(cov).min() > 0.0
    assert_array_equal(mean, model.predict(X))
    _, std = model.predict(X, return_std=True)
    assert_allclose(np.sqrt(np.diag(cov)), std, rtol=1e-6)
    _, variance = model.latent_mean_and_variance(X)
    noise = model.noise_variance_ * model.y_scale_**2
    assert_allclose(variance, std**2 - noise, rtol=1e-8, atol=1e-12)


@pytest.mark.matrix
@pytest.mark.parametrize(
    ("kernel", "H"),
    [
        (RBF(1.0) + WhiteKernel(0.3, "fixed"), 9),
        (DotProduct() ** 2, N),
        (DotProduct() + RBF(), 9),
    ],
    ids=str,
)
@pytest.mark.parametrize("covariance", ["diag", "draws", "full"])
def test_other_kernels_keep_the_variances_of_predict(kernel, covariance, H, data, rng):
    how = {"covariance": covariance, "n_neighbors": H, "learn_kernel": False}
    model = make(SWSGPRegressor, kernel, **how, random_state=0).fit(*data)
    X = rng.normal(size=(20, 2))
    _, std = model.predict(X, return_std=True)
    _, cov = model.predict(X, return_cov=True)
    assert_allclose(np.sqrt(np.diag(cov)), std, rtol=1e-6)
    assert np.linalg.eigvalsh(cov).min() > 0.0
    assert_array_equal(cov, cov.T)


def test_a_warm_start_takes_the_jitter_of_its_covariance(data):
    model = make(
        SWSGPRegressor, **FIXED, n_neighbors=9, covariance="diag", warm_start=True
    )
    assert model.fit(*data)._jitter == 1e-4
    assert model.set_params(covariance="full").fit(*data)._jitter == 1e-8


def test_a_full_model_is_that_of_scikit_learn(data, rng):
    X, y = data
    how = {"n_inducing": N, "n_neighbors": N, "covariance": "full"}
    model = make(
        SWSGPRegressor,
        **FIXED,
        **how,
        normalize_y=False,
        initial_noise=0.02,
        inducing_points="random",
    ).fit(X, y)
    exact = GaussianProcessRegressor(
        model.kernel_, alpha=model.noise_variance_, optimizer=None
    ).fit(X, y)
    X_test = 2 * rng.normal(size=(30, 2))
    mean, cov = model.predict(X_test, return_cov=True)
    exact_mean, exact_cov = exact.predict(X_test, return_cov=True)
    noise = model.noise_variance_ * np.eye(30)
    assert_allclose(mean, exact_mean, atol=1e-6)
    assert_allclose(cov, exact_cov + noise, atol=1e-6)


def test_outputs_have_covariances_of_their_own(rng):
    X, Y = make_rows(rng, Q=2)
    model = make(SWSGPRegressor, **FIXED, n_neighbors=9).fit(X, Y)
    mean, cov = model.predict(X[:7], return_cov=True)
    _, std = model.predict(X[:7], return_std=True)
    assert cov.shape == (7, 7, 2)
    assert_allclose(np.einsum("iiq->iq", cov), std**2, rtol=1e-6)
    assert model.sample_y(X[:7], 4).shape == (7, 2, 4)
    mean, variance = model.latent_mean_and_variance(X[:7])
    assert mean.shape == variance.shape == (7, 2)
    values = model.sample_f(X[:7], 2000)
    assert_allclose(values.mean(axis=2), mean, atol=0.1 * std.max())
    assert_allclose(values.std(axis=2), np.sqrt(variance), rtol=0.1)


@pytest.mark.full
@pytest.mark.parametrize("covariance", ["diag", "draws", "full"])
@pytest.mark.parametrize("H", [9, N])
def test_draws_have_the_law_of_the_joint_prediction(covariance, H, data, rng):
    how = {"covariance": covariance, "n_neighbors": H}
    model = make(SWSGPRegressor, **FIXED, **how).fit(*data)
    X = np.concatenate([1.5 * rng.normal(size=(12, 2)), [[40.0, 0.0]]])
    mean, variance = model.latent_mean_and_variance(X)
    values = model.sample_f(X, n_samples=20_000)
    error = np.sqrt(variance / 20_000)
    assert (np.abs(values.mean(axis=1) - mean) < 5 * error).all()
    found = np.cov(values)
    assert_allclose(np.diag(found), variance, rtol=0.06)
    if covariance == "diag":  # all that is left are variances of 0.01
        return
    expected = dense_covariance(model, X) * model.y_scale_**2
    unit = np.sqrt(np.outer(variance, variance))
    assert np.sqrt(np.mean((found - expected) ** 2 / unit**2)) < 0.1


@pytest.mark.parametrize("random_state", [0, pytest.param(1, marks=pytest.mark.full)])
def test_many_draws_have_the_correlations_of_the_covariance(random_state):
    """Random features alone miss correlations by 0.25 to 0.4 here."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-3.0, 3.0, (400, 2))
    y = np.sin(2.0 * X[:, 0]) * X[:, 1] + 0.3 * rng.normal(size=400)
    kernel = ConstantKernel(1.0, "fixed") * Matern(1.0, "fixed", nu=1.5)
    model = SWSGPRegressor(
        kernel, learn_kernel=False, n_inducing=60, n_neighbors=12, covariance="full",
        initial_noise=0.1, predictive="gaussian", random_state=0,
    ).fit(X, y)  # fmt: skip
    rows = rng.uniform(-1.0, 1.0, (30, 2))
    _, cov = model.predict(rows, return_cov=True)
    variance = model.latent_mean_and_variance(rows)[1]
    np.fill_diagonal(cov, variance)
    expected = cov / np.sqrt(np.outer(variance, variance))
    draws = model.sample_f(rows, 3000, random_state=random_state)
    assert_allclose(np.corrcoef(draws), expected, atol=0.09)


@pytest.mark.full  # a claim of accuracy
def test_draws_far_from_the_data_are_those_of_the_prior(model):
    X = np.array([[40.0, 0.0], [40.4, 0.0], [40.0, 1.0], [43.0, 1.0]])
    found = np.corrcoef(model.sample_f(X, n_samples=2000))
    assert_allclose(found, KERNEL(X) / 1.5, atol=0.1)


def test_a_draw_is_one_function(model, rng):
    X = rng.normal(size=(50, 2))
    values = model.sample_f(X, n_samples=3, random_state=7)
    again = model.sample_f(X[::-5], n_samples=3, random_state=7)
    assert_allclose(again, values[::-5], rtol=1e-9, atol=1e-12)
    first = model.sample_f(X, n_samples=1, random_state=7)
    assert_allclose(first, values[:, :1], rtol=1e-9, atol=1e-12)
    other = model.sample_f(X, n_samples=3, random_state=8)
    assert np.abs(other - values).max() > 0.01
    rng = np.random.RandomState(7)
    assert_array_equal(model.sample_f(X, 3, rng), values)
    assert np.abs(model.sample_f(X, 3, rng) - values).max() > 0.01


@pytest.mark.filterwarnings("ignore::skswsgp.ExtrapolationWarning")
def test_a_draw_is_smooth_between_and_beyond_rows(model):
    grid = np.stack([np.linspace(-8, 8, 2001), np.zeros(2001)], axis=1)
    values = model.sample_f(grid, n_samples=4)
    spread = np.sqrt(model.latent_mean_and_variance(grid)[1])
    steps = np.abs(np.diff(values, axis=0)) / spread[1:, None]
    assert np.median(steps) < 0.05
    assert np.quantile(steps, 0.95) < 0.3  # where a neighbour enters or leaves


def test_draws_of_observations_add_noise(model, data):
    X = data[0][:5]
    _, std = model.predict(X, return_std=True)
    values = model.sample_y(X, n_samples=2500)
    assert values.shape == (5, 2500)
    assert_allclose(values.std(axis=1), std, rtol=0.04)
    assert_array_equal(model.sample_y(X, 2), model.sample_y(X, 2))
    assert model.sample_y(X).shape == (5, 1)


@pytest.mark.parametrize("n_classes", [pytest.param(2, marks=pytest.mark.full), 3])
def test_functions_of_classes(n_classes, data, rng):
    X, y = data
    labels = np.digitize(y, np.quantile(y, np.arange(1, n_classes) / n_classes))
    model = SWSGPClassifier(n_inducing=30, learn_kernel=False, random_state=0)
    model.fit(X, labels)
    X_test = rng.normal(size=(9, 2))
    mean, variance = model.latent_mean_and_variance(X_test)
    shape = (9,) if n_classes == 2 else (9, 3)
    assert mean.shape == variance.shape == shape
    values = model.sample_f(X_test, 2500)
    assert values.shape == (*shape, 2500)
    assert_allclose(values.std(axis=-1), np.sqrt(variance), rtol=0.05)
    assert_allclose(values.mean(axis=-1), mean, atol=0.05 * np.sqrt(variance).max())
    if n_classes == 2:
        link = norm.cdf(values).mean(axis=1)
    else:
        proba = np.exp(values - values.max(axis=1, keepdims=True))
        link = (proba / proba.sum(axis=1, keepdims=True)).mean(axis=-1)[:, 1]
    assert_allclose(link, model.predict_proba(X_test)[:, 1], atol=0.03)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_learned_map(dtype, data, rng):
    X, y = data
    model = SWSGPRegressor(
        learn_map=True, n_inducing=40, n_neighbors=9, dtype=dtype, random_state=0
    ).fit(X, y)
    _, cov = model.predict(X[:8], return_cov=True)
    _, std = model.predict(X[:8], return_std=True)
    assert_allclose(np.sqrt(np.diag(cov)), std, rtol=1e-3)
    values = model.sample_y(X[:8], 3000)
    assert_allclose(values.std(axis=1), std, rtol=0.06)


@pytest.mark.parametrize(
    "n_neighbors", [4, *(pytest.param(n, marks=pytest.mark.full) for n in (1, 500))]
)
def test_the_number_of_neighbors_of_a_prediction(n_neighbors, model, rng):
    X = rng.normal(size=(6, 2))
    how = {"n_neighbors": n_neighbors}
    mean, cov = model.predict(X, return_cov=True, **how)
    expected, std = model.predict(X, return_std=True, **how)
    assert_allclose(mean, expected, rtol=1e-9)
    assert_allclose(np.sqrt(np.diag(cov)), std, rtol=1e-6)
    f_mean, variance = model.latent_mean_and_variance(X, **how)
    assert_allclose(f_mean, mean, rtol=1e-9)
    values = model.sample_f(X, 2000, **how)
    assert_allclose(values.std(axis=1), np.sqrt(variance), rtol=0.06)
    assert model.sample_y(X, 2, **how).shape == (6, 2)


def test_many_rows_are_drawn_in_blocks(model, rng, monkeypatch):
    X = rng.normal(size=(300, 2))
    X[17] = 1e160
    together = model.sample_f(X, 2)
    monkeypatch.setattr("skswsgp.joint.functions.ROWS_AT_ONCE", 1)  # M rows then
    assert_allclose(model.sample_f(X, 2), together, rtol=1e-9, atol=1e-12)
    assert np.isfinite(together).all()


@pytest.mark.full
def test_a_dot_product_has_draws(data):
    X, y = data
    model = SWSGPRegressor(
        DotProduct() + RBF(), n_inducing=20, n_neighbors=20, random_state=0
    ).fit(X, y)
    _, variance = model.latent_mean_and_variance(X[:6])
    assert_allclose(model.sample_f(X[:6], 3000).var(axis=1), variance, rtol=0.1)


def test_unusable_requests(model, data, tune):
    X, y = data
    with pytest.raises(ValueError, match="expected at most one of the two"):
        model.predict(X, return_std=True, return_cov=True)
    for n_samples in (0, 1.5, True):
        with pytest.raises(
            ValueError, match=r"n_samples=.*expected a positive integer"
        ):
            model.sample_f(X, n_samples)
    white = SWSGPRegressor(RBF() + WhiteKernel(), n_inducing=9, random_state=0)
    with pytest.raises(ValueError, match="WhiteKernel has no draws of functions"):
        white.fit(X, y).sample_y(X)
    tune(full_covariance_bytes=8 * 99**2)
    model.predict(X[:99], return_cov=True)
    with pytest.raises(ValueError, match="return_cov=True for 100 rows and 1 latent"):
        model.predict(X[:100], return_cov=True)
