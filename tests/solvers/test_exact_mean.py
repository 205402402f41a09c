"""The systems of exact means, against dense Gaussian processes."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

from skswsgp._solvers.exact_mean import (
    ExactMean,
    exact_variance,
    merge_sites,
    noise_groups,
)
from skswsgp._solvers.tuning import Tuning

KERNEL = ConstantKernel(1.5) * Matern([0.8, 1.5], nu=2.5) + WhiteKernel(0.05)
N = 1000
# several cells and global points, and a solution to rounding
SMALL = Tuning(mean_global_points=100, mean_cell_work=0.8, mean_cg_steps=200)


@pytest.fixture
def problem(rng):
    """Return points, targets and noise variances."""
    Z = rng.normal(size=(N, 2))
    f = np.sin(2 * Z[:, 0]) + Z[:, 1]
    targets = np.stack([f, 3 * f, -f], axis=1) + 0.1 * rng.normal(size=(N, 3))
    noise = np.array([0.01, 0.5, 1e-4])  # two preconditioners
    return Z, targets, noise / rng.uniform(0.5, 2.0, (N, 1))


def dense_alpha(Z, targets, noise):
    K = KERNEL(Z)
    columns = [
        np.linalg.solve(K + np.diag(one), t)
        for one, t in zip(noise.T, targets.T, strict=True)
    ]
    return np.stack(columns, axis=1)


def test_predictions_are_those_of_the_dense_solution(problem, rng):
    system = ExactMean(KERNEL, *problem, SMALL, n_threads=2)
    assert len(system.preconditioner.partitions[0]) == 8
    (alpha, _), X = system.solve(1e-9, [0]), rng.normal(size=(50, 2))
    expected = KERNEL(X, problem[0]) @ dense_alpha(*problem)
    assert_allclose(system.products.multiply(X, alpha), expected, atol=1e-5)


def test_the_tolerance_bounds_errors_in_standard_deviations(problem):
    Z, targets, noise = problem
    system = ExactMean(KERNEL, *problem, SMALL, n_threads=1)
    error = system.solve(3e-3, [0])[0] - dense_alpha(*problem)
    for q, one in enumerate(noise.T):
        A = KERNEL(Z) + np.diag(one)
        energy = error[:, q] @ A @ error[:, q]
        # The preconditioner, not A, measures it
        assert energy < 10 * 3e-3**2 * (
            targets[:, q] @ np.linalg.solve(A, targets[:, q])
        )


def test_points_left_out_have_no_say(problem):
    Z, targets, noise = problem
    out = np.arange(0, N, 7)
    kept = np.setdiff1d(np.arange(N), out)
    system = ExactMean(KERNEL, *problem, SMALL, n_threads=1)
    all_points, without = system.solve(1e-9, out)
    assert not without[out].any()
    expected = dense_alpha(Z[kept], targets[kept], noise[kept])
    actual = KERNEL(Z[out], Z[kept]) @ without[kept]
    assert_allclose(actual, KERNEL(Z[out], Z[kept]) @ expected, atol=1e-5)
    others = KERNEL(Z[out], Z) @ all_points
    assert_allclose(others, KERNEL(Z[out], Z) @ dense_alpha(*problem), atol=1e-5)


def test_too_few_steps_return_nothing(problem):
    system = ExactMean(KERNEL, *problem, SMALL._replace(mean_cg_steps=2), n_threads=1)
    assert system.solve(1e-6, [0]) is None


def test_similar_noise_shares_a_preconditioner():
    noise = np.array([[0.5, 1e-6, 0.06, 4.1, 9e-6]]) * [[1.0], [3.0]]
    groups = [list(group) for group in noise_groups(noise)]
    assert groups == [[1, 4], [2, 0], [3]]
    assert [len(group) for group in noise_groups(np.ones((2, 40)))] == [8] * 5
    # alike on average, but not at each point
    assert len(list(noise_groups(np.array([[1.0, 20.0], [20.0, 1.0]])))) == 2


def test_the_variance_far_from_the_data_is_that_of_the_prior():
    variance, prior = np.array([0.0, 1e-6, 0.5, 2.0, 2.1]), 2.0
    exact = exact_variance(variance, prior, 0.25)
    assert_allclose(exact[:2], [0.0, 0.25e-6], rtol=1e-5)
    assert_allclose(exact[3:], 2.0)
    assert_allclose(1 / exact[2] - 1 / prior, 4 * (1 / 0.5 - 1 / prior))


def test_rows_at_a_point_are_one_site():
    precision = np.array([[1.0], [2.0], [0.5]])
    precision_mean, group = np.array([[1.0], [8.0], [1.0]]), np.array([1, 1, 0])
    targets, noise = merge_sites(precision, precision_mean, group, 2)
    assert_allclose(noise, [[2.0], [1 / 3]])
    assert_allclose(targets, [[2.0], [3.0]])
    precision[2] = precision_mean[2] = 0.0  # a row that says nothing
    targets, noise = merge_sites(precision, precision_mean, group, 2)
    assert targets[0] == 0.0
    assert 1e6 < noise[0] < np.inf
