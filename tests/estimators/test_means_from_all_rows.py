"""Means from all rows, `n_neighbors="all"` and "auto"."""

import pickle

import numpy as np
import pytest
from helpers import DTYPES, make
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import (
    RBF,
    ConstantKernel,
    DotProduct,
    Matern,
    WhiteKernel,
)

from skswsgp import SWSGPClassifier, SWSGPRegressor
from skswsgp._solvers import exact_mean

KERNEL = ConstantKernel(1.5, "fixed") * Matern([0.8, 1.5], "fixed", nu=2.5)
FIXED = {"kernel": KERNEL, "learn_kernel": False, "learn_map": False, "random_state": 0}
LOCAL = {"n_neighbors": 9, "initial_noise": 0.01}
N = 260


def make_rows(rng, n=N, Q=0):
    X = rng.normal(size=(n, 2))
    y = np.sin(2 * X[:, 0]) + X[:, 1] + 0.1 * rng.normal(size=n)
    return X, np.stack([3 * y + 1, -y], axis=1) if Q else y


def exact_model(X, y, sample_weight=None, **params):
    """Return a model with nine neighbours for variances and means from all rows."""
    params = FIXED | {"initial_noise": 0.01, "n_neighbors": "all"} | params
    return make(SWSGPRegressor, **params).fit(X, y, sample_weight)


@pytest.fixture(autouse=True)
def nine_neighbors(tune):
    """Let "auto" be nine neighbours, and solve systems to rounding, in small cells."""
    tune(
        most_neighbors=9, least_neighbors=9, variance_neighbors=9, dense_rows=0,
        mean_tolerance=1e-9, mean_global_points=30, mean_cell_work=0.5,
    )  # fmt: skip


@pytest.fixture
def data():
    return make_rows(np.random.default_rng(0))


def gaussian_process(model, X, y, weight=1.0):
    """Return scikit-learn's Gaussian process of a model of one output."""
    noise = np.broadcast_to(model.noise_variance_ / weight, len(X))
    exact = GaussianProcessRegressor(model.kernel_, alpha=noise, optimizer=None)
    return exact.fit(X @ model.linear_map_, (y - model.y_mean_) / model.y_scale_)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("covariance", ["diag", "draws", "full"])
def test_means_are_those_of_a_gaussian_process(covariance, dtype, data, rng):
    model = exact_model(*data, covariance=covariance, dtype=dtype)
    assert model.n_neighbors_ == 9
    X = rng.normal(size=(40, 2))
    exact = gaussian_process(model, *data).predict(X)
    mean = model.predict(X)
    atol = 1e-6 if dtype == "float64" else 1e-3
    assert_allclose(mean, model.y_mean_ + model.y_scale_ * exact, atol=atol)
    local = model.predict(X, n_neighbors=9)
    assert np.abs(local - mean).max() > 1e-4
    assert_array_equal(model.predict(X, return_std=True)[0], mean)
    assert_array_equal(model.predict(X, n_neighbors="all"), mean)


def test_weights_equal_rows_and_several_outputs(data, rng):
    X, y = make_rows(rng, Q=2)
    X[10:20] = X[:10]
    weight = rng.uniform(0.5, 2.0, N)
    model = exact_model(X, y, weight)
    new = rng.normal(size=(30, 2))
    mean = model.predict(new)
    relative = weight / weight.mean()
    for q in range(2):
        noise = model.noise_variance_[q] / relative
        K = model.kernel_(X) + np.diag(noise)
        t = (y[:, q] - model.y_mean_[q]) / model.y_scale_[q]
        f = model.kernel_(new, X) @ np.linalg.solve(K, t)
        expected = model.y_mean_[q] + model.y_scale_[q] * f
        assert_allclose(mean[:, q], expected, atol=1e-5)
    assert model.alpha_.shape == (N - 10, 2)
    assert model.site_factor_.shape == (2,)
    assert model.site_precision_.shape == (N - 10, 2)


@pytest.mark.parametrize("n_classes", [2, 3])
def test_classes_have_the_exact_mean_of_their_sites(n_classes, data, monkeypatch, rng):
    X, y = data
    labels = np.digitize(y, [0.0, 1.0][: n_classes - 1])
    found, merge = [], exact_mean.merge_sites

    def spy(*arguments):
        found.append(merge(*arguments))
        return found[-1]

    monkeypatch.setattr(exact_mean, "merge_sites", spy)
    kernel = ConstantKernel(2.0, "fixed") * Matern(1.0, "fixed", nu=2.5)
    how = {"kernel": kernel, "learn_kernel": False, "random_state": 0}
    model = make(SWSGPClassifier, n_neighbors="all", **how).fit(X, labels)
    assert model.n_neighbors_ == 9
    (targets, noise), new = found[0], rng.normal(size=(30, 2))
    mean, variance = model.latent_mean_and_variance(new)
    Z = model.inducing_points_
    for q, (t, one) in enumerate(zip(targets.T, noise.T, strict=True)):
        alpha = np.linalg.solve(kernel(Z) + np.diag(one), t)
        exact = kernel(new, Z) @ alpha + np.ravel(model.prior_mean_)[q]
        ours = mean if mean.ndim == 1 else mean[:, q]
        assert_allclose(ours, exact, atol=1e-4)
    local, same = model.latent_mean_and_variance(new, n_neighbors=9)
    assert np.abs(local - mean).max() > 1e-4
    assert_allclose(variance, same)
    proba = model.predict_proba(new)
    assert_allclose(proba.sum(axis=1), 1.0)
    assert np.abs(proba - model.predict_proba(new, n_neighbors=9)).max() > 1e-5


def test_many_labels_have_exact_means_if_asked_for(data):
    X, labels = data[0], data[1] > 0
    how = {"learn_kernel": False, "random_state": 0}
    model = make(SWSGPClassifier, **how).fit(X, labels)
    assert model.n_neighbors_ == 9
    assert not hasattr(model, "alpha_")
    asked = make(SWSGPClassifier, n_neighbors="all", **how).fit(X, labels)
    assert hasattr(asked, "alpha_")


def test_variances_shrink_as_the_means_get_better(rng, tune):
    tune(mean_global_points=300, mean_cell_work=2.0, mean_tolerance=1e-3)
    kernel = ConstantKernel(1.0, "fixed") * Matern([1.0] * 3, "fixed", nu=2.5)
    X = rng.normal(size=(1500, 3))
    f = np.linalg.cholesky(kernel(X) + 1e-6 * np.eye(1500)) @ rng.normal(size=1500)
    y = f + 0.01 * rng.normal(size=1500)
    how = {"kernel": kernel, "initial_noise": 1e-4, "normalize_y": False}
    how |= {"predictive": "gaussian"}
    model = exact_model(X[:1000], y[:1000], **how)
    assert model.site_factor_ == pytest.approx(1000 / 9)  # as many as all points
    assert 0.05 < model.local_variance_scale_ < 0.9
    mean, std = model.predict(X[1000:], return_std=True)
    assert 0.5 < np.mean(((y[1000:] - mean) / std) ** 2) < 1.4
    variance = model.latent_mean_and_variance(X[1000:])[1]
    assert_allclose(std**2, variance + model.noise_variance_)
    far = model.latent_mean_and_variance([[100.0, 100.0, 100.0]])
    assert_allclose(far, [[0.0], [1.0]], atol=1e-6)


def test_joint_predictions_have_the_exact_mean_and_the_scaled_variance(data, rng):
    model, X = exact_model(*data), rng.normal(size=(20, 2))
    mean, std = model.predict(X, return_std=True)
    same, cov = model.predict(X, return_cov=True)
    assert_array_equal(same, mean)
    assert_allclose(np.sqrt(np.diag(cov)), std, rtol=1e-6)
    f = model.sample_f(X, 400)
    latent, variance = model.latent_mean_and_variance(X)
    error = np.sqrt(variance / 400)
    assert np.abs(f.mean(axis=1) - latent).max() < 5 * error.max()
    assert_allclose(f.var(axis=1), variance, rtol=0.5)


def test_gradients_are_those_of_the_exact_mean(data, rng):
    model, X, h = exact_model(*data), rng.normal(size=(8, 2)), 1e-5
    slopes, std = model.predict_gradient(X, return_std=True)
    for d, step in enumerate(h * np.eye(2)):
        difference = model.predict(X + step) - model.predict(X - step)
        assert_allclose(slopes[:, d], difference / (2 * h), atol=1e-5)
    _, local = model.predict_gradient(X, return_std=True, n_neighbors=9)
    exact, before = (
        model.latent_mean_and_variance(X, n_neighbors=n)[1] for n in (None, 9)
    )
    assert_allclose(std, np.sqrt(exact / before)[:, None] * local)
    assert_allclose(model.feature_importances_.sum(), 1.0)


def test_few_rows_use_all_points(data, tune):
    tune(dense_rows=N)
    model, X = exact_model(*data), data[0][:7] + 0.1
    assert model.n_neighbors_ == N
    dense = make(SWSGPRegressor, **FIXED, **LOCAL | {"n_neighbors": N}).fit(*data)
    assert not hasattr(dense, "alpha_")
    for found, expected in zip(
        model.predict(X, return_std=True),
        dense.predict(X, return_std=True),
        strict=True,
    ):
        assert_allclose(found, expected, rtol=1e-5)
    assert not hasattr(model, "local_variance_scale_")


@pytest.mark.parametrize(
    ("kernel", "dtype", "atol"),
    [
        (1.3 * Matern([1.0, 2.0]) + WhiteKernel(0.05), "float64", 1e-10),
        (DotProduct() + RBF(), "float64", 1e-10),
        pytest.param(1.0 * RBF(), "float32", 1e-4, marks=pytest.mark.slow),
    ],
)
def test_means_of_few_rows_are_those_of_scikit_learn(kernel, dtype, atol, data):
    X, y = data
    how = {"initial_noise": 0.01, "normalize_y": False, "learn_kernel": False}
    model = SWSGPRegressor(kernel, **how, dtype=dtype, random_state=0).fit(X, y)
    exact = GaussianProcessRegressor(kernel, alpha=0.01, optimizer=None).fit(X, y)
    assert_allclose(model.predict(X + 0.1), exact.predict(X + 0.1), atol=atol)


def test_too_many_rows_are_left_to_neighbors(data, tune):
    tune(mean_work=20 * N**2 - 1)
    assert not hasattr(exact_model(*data, n_neighbors="auto"), "alpha_")
    assert hasattr(exact_model(*data), "alpha_")


def test_all_is_h_equal_m_elsewhere(data, rng):
    X, y = data
    few = exact_model(X, y, n_inducing=20)
    assert few.n_neighbors_ == 20
    adam = exact_model(X, y, n_inducing=20, solver="adam", max_iter=2)
    assert adam.n_neighbors_ == 20
    how = {"n_neighbors": "all", "n_inducing": 15, "learn_kernel": False}
    labels = SWSGPClassifier(**how, random_state=0)
    assert labels.fit(X, y > 0).n_neighbors_ == 15
    local = make(SWSGPRegressor, **FIXED, **LOCAL).fit(X, y)
    assert not hasattr(local, "alpha_")
    every = local.predict(X[:5], n_neighbors="all")
    assert_array_equal(every, local.predict(X[:5], n_neighbors=N))


def test_all_is_h_equal_m_where_not_all_rows_fit(data, tune):
    tune(least_all_inducing=50, inducing_numbers=100)
    model = exact_model(*data)
    assert model.n_neighbors_ == len(model.inducing_points_) < 51


@pytest.mark.parametrize("kl_weight", [0.01, 10.0])
def test_the_weight_of_the_prior_counts(kl_weight, data):
    model = exact_model(*data, kl_weight=kl_weight)
    dense = make(
        SWSGPRegressor, **FIXED, **LOCAL | {"n_neighbors": N}, kl_weight=kl_weight
    )
    X = data[0][:20] + 0.1
    expected = dense.fit(*data).predict(X)
    assert_allclose(model.predict(X), expected, atol=1e-4)


def test_a_function_without_variance_has_exact_means_too(data):
    kernel = ConstantKernel(0.0, "fixed") * Matern(1.0, "fixed")
    model = exact_model(*data, kernel=kernel, predictive="gaussian")
    mean, std = model.predict(data[0], return_std=True)
    assert_allclose(mean, data[1].mean())
    assert_allclose(std, 0.1 * data[1].std())


def test_failure_leaves_the_neighbors_and_says_so(data, tune):
    tune(mean_cg_steps=1)
    with pytest.warns(UserWarning, match="exact means did not converge: .*=9; a la"):
        model = exact_model(*data)
    assert not hasattr(model, "alpha_")
    assert np.isfinite(model.predict(data[0])).all()
    # no warning, which is an error here, where nobody asked
    assert not hasattr(exact_model(*data, n_neighbors="auto"), "alpha_")


def test_a_later_fit_forgets_the_weights_of_rows(data):
    model = exact_model(*data)
    model.set_params(n_neighbors=9).fit(*data)
    assert not hasattr(model, "alpha_")


def test_warm_starts_find_the_weights_again(data):
    model = exact_model(*data, warm_start=True)
    before = model.predict(data[0])
    assert_allclose(model.fit(*data).predict(data[0]), before, atol=1e-5)
    with pytest.warns(UserWarning, match="the exact means need the rows of the first"):
        model.fit(data[0][:100], data[1][:100])
    assert not hasattr(model, "alpha_")


def test_pickles_predict_the_same(data):
    model = exact_model(*data)
    copy = pickle.loads(pickle.dumps(model))
    assert_array_equal(copy.predict(data[0]), model.predict(data[0]))
    assert not hasattr(clone(model), "alpha_")


def test_the_order_of_rows_does_not_matter(data, rng):
    X, y = data
    order = rng.permutation(N)
    new = rng.normal(size=(20, 2))
    first, other = exact_model(X, y), exact_model(X[order], y[order])
    assert_allclose(first.predict(new), other.predict(new), atol=1e-6)


def test_threads_do_not_change_a_bit(data, eager_threads):
    models = [exact_model(*data, n_jobs=n) for n in (1, 2)]
    assert_array_equal(models[0].alpha_, models[1].alpha_)
    assert_array_equal(*(model.predict(data[0]) for model in models))


@pytest.mark.parametrize("given", ["some", 0, -3, 2.5])
def test_other_numbers_of_neighbors_are_refused(given, data):
    model = exact_model(*data)
    with pytest.raises(ValueError, match="expected a positive integer, 'all', or None"):
        model.predict(data[0], n_neighbors=given)
