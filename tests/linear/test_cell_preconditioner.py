"""The preconditioner from global points and cells, against its dense formula."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern, WhiteKernel

from skswsgp._covariance.compile import compile_kernel
from skswsgp._linear.cell_preconditioner import CellPreconditioner, cells

KERNEL = ConstantKernel(1.5) * Matern(0.7, nu=1.5) + WhiteKernel(0.1)
M = 150


def make_preconditioner(Z, *sizes, kernel=KERNEL, n_threads=1):
    struct = compile_kernel(kernel, Z.shape[1], np.float64).struct
    return CellPreconditioner(struct, Z, np.ones(Z.shape[1]), *sizes, n_threads)


@pytest.fixture
def Z(rng):
    return rng.normal(size=(M, 2))


def test_one_cell_gives_the_inverse(Z, rng):
    noise, r = rng.uniform(0.01, 1.0, M), rng.normal(size=(M, 3))
    exact = make_preconditioner(Z, 20, M)
    inverse = exact.factorise(KERNEL.diag(Z) + noise)
    expected = np.linalg.solve(KERNEL(Z) + np.diag(noise), r)
    assert_allclose(inverse.solve(r), expected, rtol=1e-8, atol=1e-8)


def test_solutions_are_those_of_the_dense_formula(Z, rng):
    noise, r = rng.uniform(0.01, 1.0, M), rng.normal(size=(M, 3))
    approximate = make_preconditioner(Z, 20, 30)
    inverse = approximate.factorise(KERNEL.diag(Z) + noise)
    assert approximate.root.shape == (M, 20)
    dense = dense_inverse(approximate, noise, np.ones(M, dtype=bool))
    assert_allclose(inverse.solve(r), dense @ r, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("most", [1, 30, M])
def test_points_are_left_out_as_if_they_had_never_been(most, Z, rng):
    noise, r = rng.uniform(0.01, 1.0, M), rng.normal(size=(M, 3))
    approximate, gone = make_preconditioner(Z, 20, most), rng.permutation(M)[:40]
    inverse = approximate.factorise(KERNEL.diag(Z) + noise).without(gone)
    kept = ~np.isin(np.arange(M), gone)
    dense = dense_inverse(approximate, noise, kept)
    assert_allclose(inverse.solve(r), dense @ r, rtol=1e-7, atol=1e-7)
    assert not inverse.solve(r)[gone].any()


def dense_inverse(approximate, noise, kept):
    """Return the preconditioner as a matrix (M, M), zero at points not `kept`."""
    root = approximate.root
    rest = KERNEL(Z := approximate.Z) + np.diag(noise) - root @ root.T
    C = np.zeros((len(Z), len(Z)))
    for partition in approximate.partitions:
        for cell in partition:
            places = np.ix_(cell[kept[cell]], cell[kept[cell]])
            C[places] += np.linalg.inv(rest[places]) / len(approximate.partitions)
    inner = np.eye(root.shape[1]) + root.T @ C @ root
    return C - C @ root @ np.linalg.solve(inner, root.T @ C)


def test_global_points_explain_what_their_covariances_explain(Z):
    kernel = RBF(2.0)  # smooth: twenty points explain nearly all of it
    approximate = make_preconditioner(Z, 20, 30, kernel=kernel)
    assert_allclose(approximate.root @ approximate.root.T, kernel(Z), atol=0.1)


def test_it_makes_a_badly_conditioned_system_an_easy_one(Z):
    kernel, noise = ConstantKernel(1.0) * Matern(2.0, nu=2.5), 1e-4
    K = kernel(Z) + noise * np.eye(M)
    approximate = make_preconditioner(Z, 40, 40, kernel=kernel)
    values = np.linalg.eigvals(approximate.factorise(np.diag(K)).solve(K)).real
    assert values.min() > 0.0
    assert values.max() / values.min() < 1e-2 * np.linalg.cond(K)


def test_threads_do_not_change_a_bit(Z, rng):
    r, results = rng.normal(size=(M, 2)), []
    for n_threads in (1, 3):
        approximate = make_preconditioner(Z, 20, 10, n_threads=n_threads)
        inverse = approximate.factorise(KERNEL.diag(Z) + 0.1)
        results.append(inverse.solve(r))
    assert_array_equal(*results)


@pytest.mark.parametrize("most", [1, 7, 49, 50, 80, M])
def test_cells_hold_each_point_once(most, Z):
    found = cells(Z, most)
    sizes = list(map(len, found))
    assert max(sizes) <= most
    assert min(sizes) >= 0.8 * max(sizes)  # no jump where M grows
    assert_array_equal(np.sort(np.concatenate(found)), np.arange(M))


def test_equal_points_are_divided_too():
    assert sorted(map(len, cells(np.zeros((10, 2)), 3))) == [2, 2, 3, 3]
