"""Errors of rows that are left out of the kernel's parameters as well."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from skswsgp import SWSGPRegressor
from skswsgp._kernel_search.marginal_likelihood import LogPosterior
from skswsgp._posterior.kernel_uncertainty import left_out, left_out_squares

N = 40


@pytest.fixture
def rows():
    """Return a kernel, noise, X, y and ratios that maximise the log posterior."""
    rng = np.random.default_rng(0)
    X, ratios = rng.uniform(size=(N, 2)), rng.uniform(0.5, 2.0, size=(N, 1))
    y = np.sin(4.0 * X[:, :1]) + 0.3 * np.sqrt(ratios) * rng.standard_normal((N, 1))
    kernel, noise = ConstantKernel(1.0) * RBF([1.0, 1.0]), np.array([0.1])
    for _ in range(10):  # the prior is around the start, so the maximum moves
        posterior = LogPosterior(kernel, noise, X, y, ratios)
        point = posterior.maximize(posterior.moves())[0]
        kernel, noise = posterior.kernel_at(point), posterior.split(point)[1]
    return kernel, noise, X, y, ratios


def test_left_out_rows_are_predicted_from_the_others(rows):
    kernel, noise, X, y, ratios = rows
    posterior = LogPosterior(*rows)
    density, squares = left_out(posterior, posterior.start)
    for i in (0, 7, 39):
        rest = np.arange(N) != i
        C = kernel(X[rest]) + np.diag(noise[0] * ratios[rest, 0])
        k = kernel(X[rest], X[[i]])[:, 0]
        a = np.linalg.solve(C, k)
        v = kernel.diag(X[[i]])[0] - a @ k + noise[0] * ratios[i, 0]
        square = (y[i, 0] - a @ y[rest, 0]) ** 2 / v
        assert_allclose(squares[i, 0], square)
        assert_allclose(density[i, 0], -0.5 * (np.log(2 * np.pi * v) + square))


def test_growth_is_that_of_parameters_learned_without_each_row(rows):
    kernel, noise, X, y, ratios = rows
    posterior = LogPosterior(*rows)
    density, squares = left_out(posterior, posterior.start)
    loss = 0.0
    for i in range(N):
        rest = np.arange(N) != i
        other = LogPosterior(kernel, noise, X[rest], y[rest], ratios[rest])
        point = other.maximize(other.moves())[0]
        loss += density[i, 0] - left_out(posterior, point)[0][i, 0]
    before, after = left_out_squares(*rows)
    assert_allclose(before, squares.mean())
    assert_allclose(after - before, 2.0 * loss / N, rtol=0.3)
    assert loss > 0.5


def test_intervals_on_few_rows_are_wider_than_those_of_the_process():
    """Five columns that all matter: the process alone held 88 % here."""
    held = []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        w = rng.standard_normal(5)
        X = rng.uniform(-1.0, 1.0, size=(440, 5))
        y = np.sin(X @ w) + 0.3 * rng.standard_normal(440)
        model = SWSGPRegressor(random_state=0).fit(X[:40], y[:40])
        for law in ("auto", "gaussian"):
            if law == "gaussian":
                del model.predictive_law_
            lower, upper = model.predict_interval(X[40:])
            held.append(np.mean((lower <= y[40:]) & (y[40:] <= upper)))
    learned, plain = np.reshape(held, (-1, 2)).mean(axis=0)
    assert plain + 0.01 < learned < 0.97


def test_a_given_kernel_stays_as_sure_as_it_is():
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(60, 2))
    y = X[:, 0] + 0.1 * rng.standard_normal(60)
    model = SWSGPRegressor(learn_kernel=False, random_state=0).fit(X, y)
    assert_allclose(model.predictive_law_.scale_range, 1.0)


def test_a_row_leaves_with_all_its_outputs(rows):
    """Two outputs determine the parameters twice, but the row of both is one."""
    kernel, noise, X, y, ratios = rows
    twice = np.tile(noise, 2), X, np.tile(y, 2), np.tile(ratios, 2)
    (before,), (after,) = left_out_squares(*rows)
    both = left_out_squares(kernel, *twice)
    assert_allclose(both[0], before)
    assert_allclose(both[1] - both[0], after - before, rtol=0.25)  # priors count less


def test_known_noise_costs_no_row_anything(rows):
    before, after = left_out_squares(*rows)
    known = left_out_squares(*rows, noise_is_known=True)
    assert_allclose(known[0], before)
    assert before < known[1] < after


def test_nothing_that_was_learned_costs_nothing(rows):
    _, noise, *rest = rows
    kernel = ConstantKernel(1.0, "fixed") * RBF(0.7, "fixed")
    before, after = left_out_squares(kernel, noise, *rest, noise_is_known=True)
    assert_allclose(after, before)
