"""Errors of rows that neither other rows nor the kernel have learned from."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.gaussian_process.kernels import RBF, ConstantKernel

from skswsgp import SWSGPRegressor
from skswsgp._kernel_search.marginal_likelihood import LogPosterior
from skswsgp._posterior.kernel_uncertainty import errors_of_folds, errors_without

N, D = 40, 4


def fitted(seed):
    """Return a kernel, noise, X, y and ratios that maximise the log posterior."""
    rng = np.random.default_rng(seed)
    X, ratios = rng.uniform(size=(N, D)), rng.uniform(0.5, 2.0, size=(N, 1))
    y = np.sin(4.0 * X[:, :1]) + 0.3 * np.sqrt(ratios) * rng.standard_normal((N, 1))
    kernel, noise = ConstantKernel(1.0) * RBF(np.ones(D)), np.array([0.1])
    for _ in range(10):  # the prior is around the start, so the maximum moves
        posterior = LogPosterior(kernel, noise, X, y, ratios)
        point = posterior.maximize(posterior.moves())[0]
        kernel, noise = posterior.kernel_at(point), posterior.split(point)[1]
    return kernel, noise, X, y, ratios


@pytest.fixture
def rows():
    return fitted(0)


def by_hand(rows, gone, kernel, noise):
    """Return standardised errors of rows that are gone, given the others."""
    _, _, X, y, ratios = rows
    rest = ~gone
    C = kernel(X[rest]) + np.diag(noise[0] * ratios[rest, 0])
    k = kernel(X[rest], X[gone])
    A = np.linalg.solve(C, k)
    v = kernel.diag(X[gone]) - np.sum(A * k, axis=0) + noise[0] * ratios[gone, 0]
    return (y[gone, 0] - A.T @ y[rest, 0]) / np.sqrt(v)


def test_rows_of_a_fold_are_predicted_from_the_others(rows):
    kernel, noise, *_ = rows
    posterior, gone = LogPosterior(*rows), np.arange(N) % 7 == 2
    z = errors_without(posterior, posterior.start, gone)
    assert_allclose(z[:, 0], by_hand(rows, gone, kernel, noise))


def test_each_fold_has_parameters_that_have_not_seen_it(rows):
    """Each is found from the start, by many steps on the other rows alone."""
    kernel, noise, X, y, ratios = rows
    z = errors_of_folds(*rows, np.random.RandomState(0))
    n_folds = 400 // N
    fold_of = np.random.RandomState(0).permutation(N) % n_folds
    moved = []
    for fold in range(n_folds):
        gone = fold_of == fold
        other = LogPosterior(kernel, noise, X[~gone], y[~gone], ratios[~gone])
        other.variances[:] = 30.0**2
        point = other.maximize(other.moves())[0]
        found = other.kernel_at(point), other.split(point)[1]
        assert_allclose(z[gone, 0], by_hand(rows, gone, *found), atol=0.15)
        moved.append(by_hand(rows, gone, kernel, noise) - z[gone, 0])
    assert np.abs(np.concatenate(moved)).max() > 0.3  # the parameters do matter


def test_parameters_make_errors_larger():
    alone, free = [], []
    for seed in range(6):
        rows = fitted(seed)
        posterior = LogPosterior(*rows)
        for row in np.eye(N, dtype=bool):
            alone.append(errors_without(posterior, posterior.start, row)[0, 0])
        free.extend(errors_of_folds(*rows, np.random.RandomState(0))[:, 0])
    assert np.mean(np.square(alone)) + 0.05 < np.mean(np.square(free))


def test_outputs_share_the_parameters_of_a_fold(rows):
    kernel, noise, X, y, ratios = rows
    twice = np.tile(noise, 2), X, np.tile(y, 2), np.tile(ratios, 2)
    z = errors_of_folds(kernel, *twice, np.random.RandomState(0))
    assert_allclose(z[:, 0], z[:, 1], atol=1e-6)
    one = errors_of_folds(*rows, np.random.RandomState(0))
    assert_allclose(z[:, :1], one, atol=0.15)


def test_nothing_that_was_learned_moves(rows):
    _, noise, *rest = rows
    kernel, gone = ConstantKernel(1.0, "fixed") * RBF(0.7, "fixed"), np.arange(N) < 1
    z = errors_of_folds(kernel, noise, *rest, np.random.RandomState(0), True)
    fold = np.random.RandomState(0).permutation(N) % 10
    gone = fold == fold[0]
    assert_allclose(z[gone, 0], by_hand(rows, gone, kernel, noise))


def test_a_matrix_without_a_factor_gives_no_errors(rows):
    kernel, noise, X, y, ratios = rows
    zero = np.full_like(ratios, -1.0)
    assert errors_of_folds(kernel, noise, X, y, zero, np.random.RandomState(0)) is None


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
