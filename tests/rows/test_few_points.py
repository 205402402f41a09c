"""Few points that tell all of a function."""

import numpy as np
import pytest
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, DotProduct, Matern

from skswsgp._rows.data import TrainingRows
from skswsgp._rows.few_points import few_points

SMOOTH = ConstantKernel(2.0) * RBF([0.5, 0.8])


def make_rows(n=3000, **more):
    X = np.random.default_rng(0).uniform(size=(n, 2))
    return TrainingRows(X, np.zeros((n, 1)), np.ones(n), **more)


def variance_left(kernel, Z, X):
    """Return the mean over X of k(x, x) - k' K^-1 k."""
    k = kernel(Z, X)
    return np.mean(kernel.diag(X) - np.sum(k * np.linalg.solve(kernel(Z), k), axis=0))


@pytest.mark.parametrize("noise", [0.01, 1.0])
@pytest.mark.parametrize("n_all", [3000, 300_000])
def test_points_leave_a_tenth_of_what_rows_leave_unknown(noise, n_all):
    data = make_rows(stand_for=n_all)
    Z = few_points(SMOOTH, noise, data, 400)
    assert len(np.unique(Z, axis=0)) == len(Z)
    assert (Z[:, None] == data.X[None]).all(axis=2).any(axis=1).all()
    left = [variance_left(SMOOTH, Z[:M], data.X) for M in (len(Z), len(Z) - 3)]
    limits = [0.1 * noise * M / n_all for M in (len(Z), len(Z) - 3)]
    assert left[0] < 1.2 * limits[0]  # the rule looks at a part of the rows
    assert left[1] > limits[1]
    more = few_points(SMOOTH, noise, data, 400, least=len(Z) + 5)
    assert len(more) == len(Z) + 5


def test_a_rough_function_needs_all_points():
    rough = ConstantKernel(2.0) * Matern(0.1, nu=0.5)
    assert few_points(rough, 0.01, make_rows(), 400) is None
    assert few_points(SMOOTH, 1e-12, make_rows(), 20) is None


def test_the_search_ends_at_half_of_the_points_where_all_would_not_do(monkeypatch):
    calls, call = [], Matern.__call__
    monkeypatch.setattr(Matern, "__call__", lambda *a: calls.append(1) or call(*a))
    assert few_points(Matern(0.1, nu=0.5), 0.01, make_rows(), 401) is None
    assert len(calls) == 200
    calls.clear()
    late = few_points(Matern(0.5, nu=1.5), 0.02, make_rows(), 401)
    assert 200 < len(late) == len(calls)


def test_most_points_do_where_near_rows_would_tell_less():
    data = make_rows(stand_for=10**12)
    assert few_points(SMOOTH, 0.01, data, 60) is None
    left = variance_left(SMOOTH, few_points(SMOOTH, 0.01, data, 60, n_near=1), data.X)
    for n_near, known in ((0.5 * 0.01 / left, True), (2.0 * 0.01 / left, False)):
        points = few_points(SMOOTH, 0.01, data, 60, n_near=n_near)
        assert (points is not None) == known
        assert points is None or len(points) == 60


def test_a_linear_function_needs_a_point_a_column_and_one():
    assert len(few_points(DotProduct(1.0), 0.1, make_rows(), 400, least=100)) == 3


def test_few_distinct_rows_are_few_points():
    data = make_rows(50)
    copies = data._replace(X=np.repeat(data.X, 40, axis=0), y=np.zeros((2000, 1)))
    copies = copies._replace(weight=np.ones(2000))
    Z = few_points(ConstantKernel(2.0) * Matern(0.1, nu=0.5), 1e-6, copies, 400)
    assert len(Z) == 50
