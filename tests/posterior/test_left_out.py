"""Residuals of rows from predictions that do not know them."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from skswsgp._posterior.left_out import (
    Points,
    RowsLeftOut,
    posterior_of,
    predictions_from_all_others,
    residuals_from_neighbors,
    residuals_near_sites,
    residuals_of_posterior,
)
from skswsgp._rows.data import TrainingRows
from skswsgp._solvers.natural import NaturalSolver
from skswsgp._solvers.settings import Settings

KERNEL = ConstantKernel(1.3) * RBF(0.8)


@pytest.fixture
def rows():
    """Return X (n, D), y (n, 2), precisions and points; some rows share a point."""
    rng = np.random.default_rng(0)
    Z = rng.uniform(-2, 2, size=(25, 2))
    group = np.concatenate([np.arange(25), [3, 3, 7]])
    f = np.sin(2 * Z[group])
    precision = rng.uniform(5.0, 40.0, size=(28, 2))
    y = f + rng.normal(size=f.shape) / np.sqrt(precision)
    total, sums = np.zeros((2, 25, 2))
    np.add.at(total, group, precision)
    np.add.at(sums, group, precision * y)
    return Z[group], y, precision, Points(Z, sums / total, 1.0 / total, group)


def exact_prediction(X, y, precision, i, q):
    """Return mean and variance of row i of output q given all other rows."""
    rest = np.arange(len(X)) != i
    C = KERNEL(X[rest]) + np.diag(1.0 / precision[rest, q])
    k = KERNEL(X[rest], X[[i]])[:, 0]
    a = np.linalg.solve(C, k)
    variance = KERNEL.diag(X[[i]])[0] - a @ k + 1.0 / precision[i, q]
    return a @ y[rest, q], variance


def test_residuals_from_all_other_points_are_those_of_an_exact_process(rows):
    X, y, precision, points = rows
    mean, variance = predictions_from_all_others(points, KERNEL)
    found = residuals_from_neighbors(points, y, 1.0 / precision, mean, variance)
    for q in range(2):
        expected = [exact_prediction(X, y, precision, i, q) for i in range(len(X))]
        mean, variance = np.transpose(expected)
        assert_allclose(found.mean[:, q], mean, rtol=1e-5, atol=1e-6)
        assert_allclose(found.variance[:, q], variance, rtol=1e-5)
        z = (y[:, q] - mean) / np.sqrt(variance)
        assert_allclose(found.standardised[:, q], z, rtol=1e-4, atol=1e-5)


def exact_alpha(points):
    """Return the solutions alpha (M, Q) of the systems of `Points`."""
    pairs = zip(points.noise.T, points.targets.T, strict=True)
    K = KERNEL(points.Z)
    return np.stack([np.linalg.solve(K + np.diag(n), t) for n, t in pairs], axis=1)


def residuals_of_exact_mean(rows, alpha=None):
    """Return the `Residuals` near sites, means by alpha (M, Q) or by neighbours."""
    X, y, precision, points = rows
    M, K = len(points.Z), KERNEL(points.Z)
    trained = {
        "kernel_": KERNEL, "inducing_points_": points.Z, "n_neighbors_": M,
        "inducing_mean_": K @ exact_alpha(points),
        "inducing_covariance_": np.ones((M, 2)),
        "noise_variance_": np.ones(2), "_jitter": 1e-10, "_kl_weight": 1.0,
        "site_precision_": 1.0 / points.noise, "site_factor_": np.ones(2),
        "local_variance_scale_": np.ones(2),
    }  # fmt: skip
    trained |= {} if alpha is None else {"alpha_": alpha}
    settings = Settings("gaussian", 2, NaturalSolver)
    posterior = posterior_of(trained, settings)
    data = TrainingRows(X, y, np.ones(len(X)))
    mean, _ = posterior._replace(alpha=None).moments(X, with_variance=False)
    left_out = RowsLeftOut(data, 1.0 / precision, 1.0, np.arange(len(X)))
    return residuals_near_sites(left_out, posterior, mean, points)


@pytest.mark.parametrize("exact", [False, True])
def test_residuals_near_sites_are_those_of_fits_without_the_row(exact, rows):
    X, y, precision, points = rows
    found = residuals_of_exact_mean(rows, exact_alpha(points) if exact else None)
    for i in range(len(X)):
        for q in range(2):
            mean, variance = exact_prediction(X, y, precision, i, q)
            assert_allclose(found.mean[i, q], mean, rtol=1e-4, atol=1e-5)
            assert_allclose(found.variance[i, q], variance, rtol=1e-4)


def test_residuals_near_sites_hold_what_is_wrong_with_the_solution(rows):
    # a wrong coefficient of another point moves the mean as much as a prediction there
    X, _, _, points = rows
    alpha, j = exact_alpha(points), points.group[-1]
    before = residuals_of_exact_mean(rows, alpha)
    alpha[j] += 1.0
    moved = residuals_of_exact_mean(rows, alpha).mean - before.mean
    elsewhere = points.group != j
    expected = np.broadcast_to(KERNEL(X, points.Z[[j]]), moved.shape)[elsewhere]
    assert_allclose(moved[elsewhere], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("beta", [1.0, 0.3, 3.0])
def test_residuals_of_a_posterior_are_those_of_fits_without_the_row(beta):
    # u ~ N(0, P^-1), f = A u plus variance F, y = A u plus noise
    rng = np.random.default_rng(0)
    A, noise = rng.normal(size=(30, 4)), rng.uniform(0.5, 2.0, size=(30, 1))
    F, y = rng.uniform(0.0, 0.3, size=(30, 1)), rng.normal(size=(30, 1))

    def posterior(rows):
        B = beta * np.eye(4) + A[rows].T @ (A[rows] / noise[rows])
        m = np.linalg.solve(B, A[rows].T @ (y[rows] / noise[rows]))
        spread = beta * np.einsum("ij,ji->i", A, np.linalg.solve(B, A.T))
        return A @ m, spread[:, None] + F

    mean, variance = posterior(np.arange(30))
    found = residuals_of_posterior(y, noise, mean, variance, F, beta)
    few = 0
    for i in range(30):
        left_out, _ = posterior(np.arange(30) != i)
        if variance[i] - F[i] > 0.5 * beta * noise[i]:
            few += 1
            assert_allclose(found.mean[i], y[i] - 2 * (y[i] - mean[i]))
        else:
            assert_allclose(found.mean[i], left_out[i])
        assert_allclose(found.variance[i], variance[i] + noise[i])
    assert few < 5
