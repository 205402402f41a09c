"""The likelihood of rows given their nearest rows, and kernels learned with it."""

import numpy as np
import pytest
import reference
from helpers import KERNELS, drawn
from scipy.stats import norm
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern

from skswsgp._compiled.threads import max_threads
from skswsgp._covariance.compile import compile_kernel
from skswsgp._kernel_search import neighbor_likelihood
from skswsgp.baselines.shared import predict_from_near

pytestmark = pytest.mark.matrix


def make_process(X, y, kernel, noise=0.1, H=5, weight=None, n_threads=1):
    """Return a process on data X (N, D), y (N,) or (N, Q), and the centre of X."""
    weight = np.ones(len(X)) if weight is None else weight
    y = y.reshape(len(X), -1)
    noise = np.full(y.shape[1], noise)
    model, center = neighbor_likelihood.neighbor_model(
        X, y, 1.0 / weight[:, None], kernel, noise, "float64"
    )
    return neighbor_likelihood.NeighborProcess(model, H, n_threads), center


def learn(process, kernel, *, weight=None, steps=100, seed=0, **options):
    model = process.model
    compiled = compile_kernel(kernel, model.Z.shape[1], model.Z.dtype)
    weight = np.ones(len(model.Z)) if weight is None else weight
    rng = np.random.RandomState(seed)
    return process.learn(compiled, weight, rng, steps, 0.1, **options)


@pytest.mark.parametrize("weighted", [False, True])
def test_all_neighbors_give_the_exact_gaussian_process(rng, weighted):
    X, X_new = rng.normal(size=(30, 2)) + 5.0, rng.normal(size=(7, 2)) + 5.0
    y = rng.normal(size=30)
    weight = rng.uniform(0.2, 3.0, size=30) if weighted else np.ones(30)
    kernel = KERNELS["matern"]
    process, center = make_process(X, y, kernel, 0.2, H=30, weight=weight)
    exact = GaussianProcessRegressor(kernel, optimizer=None, alpha=0.2 / weight)
    mean, std = exact.fit(X, y).predict(X_new, return_std=True)

    mu, v = predict_from_near(process, X_new, center)

    np.testing.assert_allclose(mu[:, 0], mean, rtol=0, atol=1e-8)
    np.testing.assert_allclose(v[:, 0], std**2, rtol=0, atol=1e-8)


def test_weights_act_like_repetition(rng):
    X, y, weight = (
        rng.normal(size=(6, 2)),
        rng.normal(size=6),
        np.array([1, 2, 1, 3, 1, 1]),
    )
    rows = np.repeat(np.arange(6), weight)
    X_new = rng.normal(size=(4, 2))
    weighted, center = make_process(
        X, y, KERNELS["matern"], H=6, weight=weight.astype(float)
    )
    repeated, other = make_process(X[rows], y[rows], KERNELS["matern"], H=9)
    first = predict_from_near(weighted, X_new, center)
    for actual, expected in zip(
        first, predict_from_near(repeated, X_new, other), strict=True
    ):
        np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-8)


@pytest.mark.parametrize("H", [1, 3, 8, 39])
def test_rows_are_not_their_own_neighbors(rng, H):
    X = np.repeat(rng.normal(size=(8, 2)), 5, axis=0)  # five copies, more than H = 3
    process, _ = make_process(X, X[:, 0], KERNELS["matern"], H=H)
    rows = rng.permutation(40)
    lists = process.others(rows)
    assert lists.shape == (40, H)
    assert not (lists == rows[:, None]).any()
    assert all(len(set(row)) == H for row in lists.tolist())
    same = (X[lists] == X[rows][:, None]).all(axis=2).sum(axis=1)
    np.testing.assert_array_equal(same, min(H, 4))


def test_neighbors_are_the_nearest_under_the_kernel(rng):
    X = rng.normal(size=(50, 2))
    kernel = Matern([0.1, 10.0], nu=0.5)
    process, _ = make_process(X, X[:, 0], kernel, H=4)
    expected = reference.neighbor_table(kernel, X, X, 5)[:, 1:]
    np.testing.assert_array_equal(process.others(np.arange(50)), expected)


def test_learning_recovers_the_kernel():
    truth = ConstantKernel(1.0) * Matern([0.5, 2.0], nu=1.5)
    X, y = drawn(truth, noise=0.05)
    start = ConstantKernel(3.0) * Matern([1.5, 0.7], nu=1.5)
    process, _ = make_process(X, y, start, noise=0.5, H=20)
    curve = learn(process, start, steps=200)
    assert curve.shape == (200,)
    assert curve[-50:].mean() > curve[:10].mean() + 0.1
    # The tolerances are about three standard errors of the exact estimate.
    assert process.model.noise[0] == pytest.approx(0.05, rel=0.35)
    short, long = process.model.params[:2]
    assert short == pytest.approx(0.5, rel=0.35)
    assert long == pytest.approx(2.0, rel=0.5)


def test_all_neighbors_give_the_leave_one_out_likelihood():
    # Rasmussen and Williams (2006), eq. 5.12, with the inverse of K + noise I.
    kernel = KERNELS["rbf-white"]
    X, y = drawn(kernel, noise=0.05, N=40)
    process, _ = make_process(X, y, kernel, noise=0.05, H=39)
    inverse = np.linalg.inv(kernel(X) + 0.05 * np.eye(40))
    variance = 1.0 / np.diag(inverse)
    density = norm.logpdf(inverse @ y * variance, scale=np.sqrt(variance))
    curve = learn(process, kernel, steps=1)
    assert curve[0] == pytest.approx(density.mean(), rel=1e-9)


def test_fixed_parameters_and_bounds_are_respected():
    X, y = drawn(ConstantKernel(1.0) * Matern([0.5, 2.0], nu=1.5), noise=0.05, N=200)
    kernel = ConstantKernel(2.0, "fixed") * Matern([1.0, 1.0], (0.9, 1.1), nu=1.5)
    process, _ = make_process(X, y, kernel, H=10)
    learn(process, kernel)
    short, long, variance = process.model.params
    assert variance == 2.0
    assert short == pytest.approx(0.9)
    assert long == pytest.approx(1.1)


def test_learning_is_bitwise_equal_for_any_number_of_threads():
    if max_threads(2) < 2:
        pytest.skip("numba may use one thread only")
    kernel = KERNELS["matern"]
    X, y = drawn(kernel, noise=0.1, N=100)
    curves = []
    for n_threads in (1, 2):
        process, _ = make_process(X, y, kernel, n_threads=n_threads)
        curves.append(learn(process, kernel, steps=30))
    np.testing.assert_array_equal(*curves)


def test_rows_of_weight_zero_change_nothing(rng):
    kernel = KERNELS["matern"]
    X, y = drawn(kernel, noise=0.1, N=60)
    ends = []
    for outlier in (0.0, 1e3):
        process, _ = make_process(X, y, kernel, H=4)
        process.model.m[7] = outlier
        process.model.s[7] = 1e30  # relative noise variance of the row as a neighbour
        weight = np.ones(60)
        weight[7] = 0.0
        learn(process, kernel, weight=weight, steps=30)
        ends.append(np.r_[process.model.params, process.model.noise])
    np.testing.assert_allclose(*ends, rtol=1e-9)


@pytest.mark.parametrize("broken", ["params", "noise", "m"])
def test_nonfinite_values_raise(broken, rng):
    kernel = KERNELS["matern"]
    X = rng.normal(size=(40, 2))
    process, center = make_process(X, X[:, 0], kernel)
    getattr(process.model, broken)[:] = np.nan
    with pytest.raises(FloatingPointError, match="NaN or infinity"):
        learn(process, kernel, steps=2)
    with pytest.raises(FloatingPointError, match="covariance matrix of neighbours"):
        predict_from_near(process, X, center)


def test_shared_length_scale_ratios_are_kept():
    X, y = drawn(ConstantKernel(1.0) * Matern([0.5, 2.0], nu=1.5), noise=0.05, N=300)
    kernel = ConstantKernel(1.0) * Matern([3.0, 6.0], nu=1.5)
    process, _ = make_process(X, y, kernel, H=10)
    learn(process, kernel, shared=np.arange(2))
    short, long = process.model.params[:2]
    assert long / short == pytest.approx(2.0, rel=1e-9)
    assert short < 2.0


def test_excluded_rows_change_nothing(rng):
    kernel = KERNELS["matern"]
    X, y = drawn(kernel, noise=0.1, N=60)
    far = X.copy()
    far[50:] += 1e6  # too far to be neighbours of the other rows
    ends = []
    for factor in (1.0, 100.0):
        process, _ = make_process(far, np.r_[y[:50], factor * y[50:]], kernel, H=4)
        learn(process, kernel, rows=np.arange(50), steps=30)
        ends.append(np.r_[process.model.params, process.model.noise])
    np.testing.assert_array_equal(*ends)


def test_standardised_squares_are_those_of_rows_left_out():
    kernel = KERNELS["matern"]
    X, y = drawn(kernel, noise=0.05, N=40)
    process, _ = make_process(X, y, kernel, noise=0.05, H=39)
    inverse = np.linalg.inv(kernel(X) + 0.05 * np.eye(40))
    variance = 1.0 / np.diag(inverse)
    rows = np.array([3, 17, 4])
    square, v = process.standardised(rows, np.ones(3))
    np.testing.assert_allclose(v[:, 0], variance[rows], rtol=1e-9)
    expected = (inverse @ y) ** 2 * variance
    np.testing.assert_allclose(square[:, 0], expected[rows], rtol=1e-9)


@pytest.mark.parametrize(("n_rows", "n_drawn"), [(10, 4), (10, 25), (1, 3)])
def test_rows_are_drawn_equally_often(n_rows, n_drawn):
    rows = neighbor_likelihood.draw_rows(
        np.arange(n_rows) + 5, n_drawn, np.random.RandomState(0)
    )
    counts = np.bincount(rows - 5, minlength=n_rows)
    assert counts.sum() == n_drawn
    assert counts.max() - counts.min() <= 1
