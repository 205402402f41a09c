"""The preconditioner from a few points, against its dense formula."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, DotProduct

from skswsgp._linear.nystrom import NystromPreconditioner
from skswsgp._rows.data import TrainingRows

N, JITTER = 1100, 1e-8  # more rows than two blocks


@pytest.fixture
def data(rng):
    X = rng.normal(size=(N, 2))
    return TrainingRows(X, np.zeros((N, 1)), np.ones(N), center=np.zeros(2))


@pytest.mark.parametrize("n_threads", [1, 2])
@pytest.mark.parametrize("kernel", [ConstantKernel(2.0) * RBF(1.0), DotProduct()])
def test_solutions_are_those_of_the_dense_approximation(kernel, n_threads, data, rng):
    points, F = data.X[:7], rng.uniform(0.0, 0.01, N)
    w = rng.uniform(0.0, 5.0, N)
    w[2] = 0.0
    how = JITTER, n_threads
    approximation = NystromPreconditioner(kernel, points, data, F, *how)
    approximation.factorise(w)
    cross = kernel(data.X, points)
    inner = kernel(points) + JITTER * np.eye(7)
    Q = cross @ np.linalg.solve(inner, cross.T)
    np.fill_diagonal(Q, np.maximum(kernel.diag(data.X) - F, np.diag(Q)))
    S = np.eye(N) + np.sqrt(w[:, None] * w) * Q
    r = rng.normal(size=(N, 3))
    assert_allclose(approximation.solve(r), np.linalg.solve(S, r), atol=1e-7)


def test_all_points_give_the_inverse(data, rng):
    few = data.take(np.arange(40))
    kernel, w = RBF(1.0), rng.uniform(0.0, 5.0, 40)
    exact = NystromPreconditioner(kernel, few.inputs, few, np.zeros(40), 1e-12, 1)
    exact.factorise(w)
    S = np.eye(40) + np.sqrt(w[:, None] * w) * kernel(few.inputs)
    r = rng.normal(size=(40, 2))
    assert_allclose(S @ exact.solve(r), r, atol=1e-6)


def test_bits_of_solutions_do_not_depend_on_threads(data, rng):
    F, r = np.zeros(N), rng.normal(size=(N, 3))
    solutions = []
    for n_threads in (1, 2, 3):
        rows = data, F, JITTER, n_threads
        approximation = NystromPreconditioner(RBF(1.0), data.X[:7], *rows)
        approximation.factorise(np.ones(N))
        solutions.append(approximation.solve(r))
    assert_array_equal(solutions[1], solutions[0])
    assert_array_equal(solutions[2], solutions[0])
