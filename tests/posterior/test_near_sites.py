"""Variances of f from the sites at near points, against dense formulas."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from skswsgp import SWSGPRegressor
from skswsgp._posterior.near_sites import KnownSites, NearSites, fit_factor
from skswsgp._solvers.model import build_model

KERNEL = ConstantKernel(1.3) * RBF(0.8)
M, FACTOR = 30, np.array([1.0, 2.5])


def kriging(X, Z, precision, n_near):
    """Return v (n,) of one function from its nearest points."""
    out = np.empty(len(X))
    for i, x in enumerate(X):
        w = np.argsort(np.sum((Z - x) ** 2, axis=1))[:n_near]
        C, k = KERNEL(Z[w]) + np.diag(1.0 / precision[w]), KERNEL(Z[w], x[None])[:, 0]
        out[i] = KERNEL.diag(x[None])[0] - k @ np.linalg.solve(C, k)
    return out


@pytest.fixture
def points(rng):
    """Return the model of M points, and precisions (M, 2) there."""
    attributes = {
        "kernel_": KERNEL, "inducing_points_": rng.uniform(-2, 2, (M, 2)),
        "inducing_mean_": np.zeros((M, 2)), "inducing_covariance_": np.ones((M, 2)),
        "noise_variance_": np.ones(2), "_jitter": 1e-10,
    }  # fmt: skip
    return build_model(attributes, ("gaussian", 2), "float64"), rng.uniform(
        5, 50, (M, 2)
    )


def near_sites(model, precision, n_near):
    known = KnownSites(precision, FACTOR, np.ones(2), n_near)
    return NearSites(model, KERNEL, known, 1, "exact", "cpu")


@pytest.mark.parametrize("n_near", [6, M])
def test_variances_are_those_of_kriging(n_near, points, rng):
    (model, _), precision = points
    X, near = rng.uniform(-2, 2, (20, 2)), near_sites(model, precision, n_near)
    found = near.variances(X, np.empty((20, 0)))
    for q, factor in enumerate(FACTOR):
        expected = kriging(X, model.Z, factor * precision[:, q], n_near)
        assert_allclose(found[:, q], expected, rtol=1e-6)


def test_variances_without_a_row_know_other_rows_at_its_point(points):
    (model, _), precision = points
    own = precision[:4].copy()
    own[2] *= 0.25  # others at this point have the rest
    near = near_sites(model, precision, 6)
    found = near.without_rows(model.Z[:4], own)(FACTOR, 1.0)
    for i in range(4):
        others = np.delete(np.arange(M), i)
        for q, factor in enumerate(FACTOR):
            there = factor * precision[others, q]
            v = kriging(model.Z[[i]], model.Z[others], there, 6)[0]
            rest = precision[i, q] - own[i, q]
            assert_allclose(found[i, q], 1.0 / (1.0 / v + rest), rtol=1e-6)
    # rows that are no points leave none out
    found = near.without_rows(model.Z[:1] + 0.1, own[:1])(1.0, 1.0)
    expected = kriging(model.Z[:1] + 0.1, model.Z, precision[:, 0], 6)
    assert_allclose(found[:, 0], expected, rtol=1e-6)


def test_the_factor_is_that_under_which_means_move_as_they_do(rng):
    noise, true = np.ones((500, 2)), np.array([3.0, 40.0])

    def variances(factor, scale):
        c = factor * np.array([0.02, 2.0])
        return scale / (1.0 + c)[None] * np.ones((500, 2))

    v = variances(true, 1.0)
    errors = rng.normal(size=(500, 2)) * np.sqrt(v + noise)
    residuals = errors * noise / (v + noise)
    factor, scale = fit_factor(variances, noise, errors, residuals, 1000.0)
    assert_allclose(factor, true, rtol=0.05)
    assert_allclose(scale, 1.0)
    # from 1 to as many as all points; then the variance itself is scaled
    factor, scale = fit_factor(variances, noise, errors, residuals, 20.0)
    assert_allclose(factor, [3.0, 20.0], rtol=0.05)
    assert_allclose(scale, [1.0, 41.0 / 81.0], rtol=0.05)
    for one in fit_factor(variances, noise, errors, 0.0 * errors, 20.0):
        assert_allclose(one, 1.0)


def test_rows_beyond_the_data_are_as_unknown_as_their_kernel_says(rng):
    # behind strong noise near points count as many, which says nothing of far rows
    X = rng.uniform(-3, 3, (1500, 1))
    kernel = ConstantKernel(1.0, "fixed") * RBF(0.7, "fixed")
    how = {"learn_kernel": False, "initial_noise": 0.5, "n_neighbors": 64}
    model = SWSGPRegressor(kernel, **how, random_state=0)
    model.fit(X, np.sin(3 * X[:, 0]) + rng.normal(size=1500))
    assert model.site_factor_ > 1.5  # 1.7 to 2.7 for twelve seeds
    _, variance = model.latent_mean_and_variance(np.array([[3.7], [4.4], [7.0]]))
    prior = model.y_scale_**2
    nothing = 1.0 - np.exp(-(((np.array([3.7, 4.4]) - 3.0) / 0.7) ** 2))
    assert np.all(variance[:2] > 0.5 * nothing * prior)
    assert_allclose(variance[2], prior, rtol=1e-3)


def test_rows_far_from_the_origin_are_not_their_own_neighbors(rng):
    X = rng.uniform(-2, 2, (300, 2))
    y = np.sin(2 * X[:, 0]) + 0.01 * rng.normal(size=300)
    how = {"learn_kernel": False, "initial_noise": 1e-4, "n_neighbors": 20}
    here, *others = (
        SWSGPRegressor(KERNEL, **how, random_state=0).fit(X + shift, y).leave_one_out_
        for shift in (0.0, 2.5, 17.3, 1e6)
    )
    for there in others:
        assert_allclose(there.std, here.std, rtol=1e-3)
        assert_allclose(there.residual, here.residual, atol=1e-4)


@pytest.mark.full  # a claim of accuracy
@pytest.mark.parametrize("exact", [False, True])
def test_intervals_of_the_function_hold(exact):
    held = []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        X = rng.uniform(-1, 1, (3000, 2))
        f = np.sin(3 * X[:, 0]) * np.cos(2 * X[:, 1])
        y = f[:2000] + 0.3 * rng.normal(size=2000)
        how = {"n_neighbors": "auto" if exact else 64, "random_state": seed}
        model = SWSGPRegressor(**how).fit(X[:2000], y)
        assert hasattr(model, "alpha_") == exact
        mean, variance = model.latent_mean_and_variance(X[2000:])
        held.append(np.mean(np.abs(mean - f[2000:]) < 1.96 * np.sqrt(variance)))
    assert 0.88 < np.mean(held) < 0.995


def test_noisy_rows_do_not_hide_what_precise_ones_say_of_the_variance(rng):
    """Errors of rows whose deviation is 2 are a hundred times those of f."""
    X = rng.uniform(-2.0, 2.0, (3500, 2))
    f = np.sin(2.0 * X[:, 0]) * X[:, 1]
    std = np.where(rng.random(3500) < 0.5, 0.1, 2.0)
    y = f + std * rng.standard_normal(3500)
    model = SWSGPRegressor(y_transform=None, random_state=0)
    model.fit(X[:1500], y[:1500], noise_variance=std[:1500] ** 2)
    mean, variance = model.latent_mean_and_variance(X[1500:])
    squares = np.mean((mean - f[1500:]) ** 2)
    assert 0.4 < squares / np.mean(variance) < 2.5
