"""Residuals of rows from predictions that do not know them."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from skswsgp._posterior.left_out import (
    ExactMeans,
    Points,
    predictions_from_all_others,
    predictions_from_others,
    residuals_from_neighbors,
    residuals_of_exact_means,
    residuals_of_posterior,
)

KERNEL = ConstantKernel(1.3) * RBF(0.8)
OPTIONS = 1, "auto", "cpu"


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


@pytest.mark.parametrize("inverse", [False, True])
def test_residuals_from_all_other_points_are_those_of_an_exact_process(inverse, rows):
    X, y, precision, points = rows
    if inverse:
        mean, variance = predictions_from_all_others(points, KERNEL)
    else:
        mean, variance = predictions_from_others(points, KERNEL, 24, OPTIONS)
    found = residuals_from_neighbors(points, y, 1.0 / precision, mean, variance)
    for q in range(2):
        expected = [exact_prediction(X, y, precision, i, q) for i in range(len(X))]
        mean, variance = np.transpose(expected)
        assert_allclose(found.mean[:, q], mean, rtol=1e-5, atol=1e-6)
        assert_allclose(found.variance[:, q], variance, rtol=1e-5)
        z = (y[:, q] - mean) / np.sqrt(variance)
        assert_allclose(found.standardised[:, q], z, rtol=1e-4, atol=1e-5)


def test_residuals_of_exact_means_are_those_of_fits_without_the_row(rows):
    X, y, precision, points = rows
    K, M = KERNEL(points.Z), len(points.Z)
    noise, targets = points.noise, points.targets
    systems = [K + np.diag(noise[:, q]) for q in range(2)]
    alpha = [np.linalg.solve(C, targets[:, q]) for q, C in enumerate(systems)]
    alpha = np.stack(alpha, axis=1)
    _, variance = predictions_from_others(points, KERNEL, M - 1, OPTIONS)
    z = alpha * np.sqrt(variance + noise)
    held_out = np.arange(0, M, 2)
    means = ExactMeans(alpha, np.ones(2), held_out, z[held_out])
    args = points, y, 1.0 / precision, variance, KERNEL.diag(points.Z)
    found = residuals_of_exact_means(*args, means)
    for i in range(len(X)):
        for q in range(2):
            mean, variance = exact_prediction(X, y, precision, i, q)
            assert_allclose(found.mean[i, q], mean, rtol=1e-4, atol=1e-5)
            assert_allclose(found.variance[i, q], variance, rtol=1e-4)
    # errors at held-out points that are half as large halve those of lone rows
    halved = means._replace(standardised=0.5 * z[held_out])
    again = residuals_of_exact_means(*args, halved)
    alone = np.bincount(points.group)[points.group] == 1
    assert_allclose(again.standardised[alone], 0.5 * found.standardised[alone])


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
