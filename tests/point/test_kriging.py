"""Kriging from nearest data, and kernels learned by it."""

import numpy as np
import pytest
import reference
from helpers import KERNELS, assert_close, assert_derivatives, drawn, make_problem
from scipy.stats import norm
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern

from skswsgp._compiled.threads import max_threads
from skswsgp._covariance.compile import compile_kernel
from skswsgp._covariance.program import refresh_scales
from skswsgp._engine import cpu_loops as loops
from skswsgp._engine.cpu import CpuEngine
from skswsgp._initialization.neighbor_likelihood import (
    NeighborProcess,
    draw_rows,
    neighbor_model,
)
from skswsgp._point.state import allocate_gradients, allocate_workspace


@pytest.fixture(params=KERNELS)
def kernel(request):
    return KERNELS[request.param]


@pytest.fixture(params=[1, 2], ids=["Q=1", "Q=2"])
def problem(kernel, request, rng):
    return make_data(kernel, request.param, rng)


def make_data(kernel, Q, rng, dtype="float64"):
    """Return a random `Problem`, whose s are the relative noise variances of data."""
    # 20 rows: more than the chunks that the loops cut them into
    options = {"full": False, "rng": rng, "dtype": dtype, "M": 9, "H": 5, "n": 20}
    return make_problem(kernel, "gaussian", Q, **options)


def with_ratios(y):
    """Return targets with the ratios of their noise variances to `noise` behind."""
    ratios = np.linspace(0.5, 2.0, y.size).reshape(y.shape)
    return np.hstack([y, ratios.astype(y.dtype)])


def gradients(problem, n_threads=1):
    """Return the gradients of the weighted sum of log densities."""
    batch = problem.batch._replace(y=with_ratios(problem.batch.y))
    H, n = batch.active.shape[1], len(batch.X)
    grads = allocate_gradients(problem.model, 1, H)
    works = allocate_workspace(problem.model, H, n_threads)
    loops.kriging_gradients(problem.model, batch, 0, n, works, grads)
    return grads


def predictions(problem, n_threads=1):
    """Return mu and F, each (n, Q)."""
    model, batch = problem.model, problem.batch
    engine = CpuEngine(model, batch.active.shape[1], n_threads)
    return engine.kriging_predictions(batch.X, batch.active)


def data_of(problem):
    """Return what the reference calls Z, m, weight, noise_variance, neighbors."""
    model = problem.model
    return model.Z, model.m, 1.0 / model.s, model.noise, problem.batch.active


def log_likelihood(problem):
    """Return the weighted sum of log densities, from the reference."""
    batch = problem.batch
    return reference.nearest_neighbor_log_likelihood(
        problem.kernel,
        batch.X,
        with_ratios(batch.y),
        *data_of(problem),
        batch.weight,
    )


# ---------------------------------------------------------------- the formulas


def test_predictions_equal_reference(problem):
    mu, F = predictions(problem)
    expected = reference.krige_all(problem.kernel, problem.batch.X, *data_of(problem))
    assert_close(mu, expected[0], roundings=1e6)  # a jitter of 1e-12 of K
    assert_close(F, expected[1], roundings=1e6)


def test_log_density_equals_reference(problem):
    value = gradients(problem).sums[0, 0]
    np.testing.assert_allclose(value, log_likelihood(problem), rtol=1e-9)


def test_gradients_equal_differences(problem):
    grads, model = gradients(problem), problem.model

    def by_params(theta):
        inv_scale = model.inv_scale.copy()
        there = problem.replace(params=np.exp(theta), inv_scale=inv_scale)
        refresh_scales(there.model)
        return gradients(there).sums[0, 0]

    def by_noise(theta):
        return gradients(problem.replace(noise=np.exp(theta))).sums[0, 0]

    assert_derivatives(grads.d_log[0], by_params, np.log(model.params))
    assert_derivatives(grads.d_noise[0], by_noise, np.log(model.noise))


def test_float32(kernel):
    single, double = (
        make_data(kernel, 2, np.random.default_rng(0), dtype)
        for dtype in ("float32", "float64")
    )
    for actual, expected in zip(predictions(single), predictions(double), strict=True):
        assert actual.dtype == np.float32
        assert_close(actual, expected, roundings=1e2, dtype="float32")
    grads, expected = gradients(single), gradients(double)
    for name in ("sums", "d_log", "d_noise"):
        actual = getattr(grads, name)[0]
        assert_close(actual, getattr(expected, name)[0], roundings=1e3, dtype="float32")


def test_bits_do_not_depend_on_threads(problem):
    if max_threads(2) < 2:
        pytest.skip("numba may use one thread only")
    for function in (predictions, gradients):
        one, two = (function(problem, n_threads) for n_threads in (1, 2))
        for first, second in zip(one, two, strict=True):
            np.testing.assert_array_equal(first, second)


def test_what_cannot_be_factorised_is_nan(problem):
    broken = problem.replace(params=np.full_like(problem.model.params, np.nan))
    assert np.isnan(predictions(broken)).all()
    assert np.isnan(gradients(broken).sums[0, 0])


# ---------------------------------------------------------------- the local process


def make_process(X, y, kernel, noise=0.1, H=5, weight=None, n_threads=1):
    """Return a process on data X (N, D), y (N,) or (N, Q), and the centre of X."""
    weight = np.ones(len(X)) if weight is None else weight
    y = y.reshape(len(X), -1)
    noise = np.full(y.shape[1], noise)
    model, center = neighbor_model(
        X, y, 1.0 / weight[:, None], kernel, noise, "float64"
    )
    return NeighborProcess(model, H, n_threads), center


def learn(process, kernel, *, weight=None, steps=100, seed=0, **options):
    model = process.model
    compiled = compile_kernel(kernel, model.Z.shape[1], model.Z.dtype)
    weight = np.ones(len(model.Z)) if weight is None else weight
    rng = np.random.RandomState(seed)
    return process.learn(compiled, weight, rng, steps, 0.1, **options)


@pytest.mark.parametrize("weighted", [False, True])
def test_with_all_data_as_neighbors_it_is_the_exact_gaussian_process(rng, weighted):
    X, X_new = rng.normal(size=(30, 2)) + 5.0, rng.normal(size=(7, 2)) + 5.0
    y = rng.normal(size=30)
    weight = rng.uniform(0.2, 3.0, size=30) if weighted else np.ones(30)
    kernel = KERNELS["matern"]
    process, center = make_process(X, y, kernel, 0.2, H=30, weight=weight)
    exact = GaussianProcessRegressor(kernel, optimizer=None, alpha=0.2 / weight)
    mean, std = exact.fit(X, y).predict(X_new, return_std=True)

    mu, v = process.predict_rows(X_new, center)

    np.testing.assert_allclose(mu[:, 0], mean, rtol=0, atol=1e-8)
    np.testing.assert_allclose(v[:, 0], std**2, rtol=0, atol=1e-8)


def test_weight_equals_repetition(rng):
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
    first = weighted.predict_rows(X_new, center)
    for actual, expected in zip(
        first, repeated.predict_rows(X_new, other), strict=True
    ):
        np.testing.assert_allclose(actual, expected, rtol=0, atol=1e-8)


@pytest.mark.parametrize("search", ["brute", "kd_tree"])
@pytest.mark.parametrize("H", [1, 3, 8, 39])
def test_a_row_is_not_its_own_neighbor(rng, H, search):
    X = np.repeat(rng.normal(size=(8, 2)), 5, axis=0)  # more copies than H = 3
    process, _ = make_process(X, X[:, 0], KERNELS["matern"], H=H)
    process.search = search
    rows = rng.permutation(40)
    lists = process.others(rows)
    assert lists.shape == (40, H)
    assert not (lists == rows[:, None]).any()
    assert all(len(set(row)) == H for row in lists.tolist())
    same = (X[lists] == X[rows][:, None]).all(axis=2).sum(axis=1)
    np.testing.assert_array_equal(same, min(H, 4))


def test_others_are_the_nearest_under_the_kernel(rng):
    X = rng.normal(size=(50, 2))
    kernel = Matern([0.1, 10.0], nu=0.5)
    process, _ = make_process(X, X[:, 0], kernel, H=4)
    expected = reference.neighbor_table(kernel, X, X, 5)[:, 1:]
    np.testing.assert_array_equal(process.others(np.arange(50)), expected)


def test_learning_recovers_the_process():
    truth = ConstantKernel(1.0) * Matern([0.5, 2.0], nu=1.5)
    X, y = drawn(truth, noise=0.05)
    start = ConstantKernel(3.0) * Matern([1.5, 0.7], nu=1.5)
    process, _ = make_process(X, y, start, noise=0.5, H=20)
    curve = learn(process, start, steps=200)
    assert curve.shape == (200,)
    assert curve[-50:].mean() > curve[:10].mean() + 0.1
    # Three standard errors of the exact estimate, about.
    assert process.model.noise[0] == pytest.approx(0.05, rel=0.35)
    short, long = process.model.params[:2]
    assert short == pytest.approx(0.5, rel=0.35)
    assert long == pytest.approx(2.0, rel=0.5)


def test_with_all_others_as_neighbors_it_is_leave_one_out():
    # Rasmussen and Williams (2006), eq. 5.12: by the inverse of C = K + noise I.
    kernel = KERNELS["rbf-white"]
    X, y = drawn(kernel, noise=0.05, N=40)
    process, _ = make_process(X, y, kernel, noise=0.05, H=39)
    inverse = np.linalg.inv(kernel(X) + 0.05 * np.eye(40))
    variance = 1.0 / np.diag(inverse)
    density = norm.logpdf(inverse @ y * variance, scale=np.sqrt(variance))
    curve = learn(process, kernel, steps=1)
    assert curve[0] == pytest.approx(density.mean(), rel=1e-9)


@pytest.mark.parametrize("factor", [0.1, 0.5, 8.0])
def test_settling_finds_the_noise_alone(factor):
    truth = ConstantKernel(1.0) * Matern([0.5, 2.0], nu=1.5)
    X, y = drawn(truth, noise=0.05)
    process, _ = make_process(X, y, truth, noise=0.05 * factor, H=20)
    params = process.model.params.copy()
    process.fit_noise(np.ones(600), np.random.RandomState(0))
    assert process.model.noise[0] == pytest.approx(0.05, rel=0.2)
    np.testing.assert_array_equal(process.model.params, params)


def test_settling_leaves_the_noise_where_it_is_best():
    kernel = KERNELS["matern"]
    X, y = drawn(kernel, noise=0.1, N=100)
    process, _ = make_process(X, y, kernel)
    weight = np.ones(100)
    densities = []
    for _ in range(3):
        process.fit_noise(weight, np.random.RandomState(0))
        noise = process.model.noise.copy()
        densities.append(learn(process, kernel, steps=1)[0])  # each row once
        process, _ = make_process(X, y, kernel, noise=noise[0])
    assert densities == sorted(densities)


def test_fixed_parameters_stay_and_bounds_hold():
    X, y = drawn(ConstantKernel(1.0) * Matern([0.5, 2.0], nu=1.5), noise=0.05, N=200)
    kernel = ConstantKernel(2.0, "fixed") * Matern([1.0, 1.0], (0.9, 1.1), nu=1.5)
    process, _ = make_process(X, y, kernel, H=10)
    learn(process, kernel)
    short, long, variance = process.model.params
    assert variance == 2.0
    assert short == pytest.approx(0.9)
    assert long == pytest.approx(1.1)


def test_learning_repeats_for_any_number_of_threads():
    if max_threads(2) < 2:
        pytest.skip("numba may use one thread only")
    kernel = KERNELS["matern"]
    X, y = drawn(kernel, noise=0.1, N=100)
    curves = []
    for n_threads in (1, 2):
        process, _ = make_process(X, y, kernel, n_threads=n_threads)
        curves.append(learn(process, kernel, steps=30))
    np.testing.assert_array_equal(*curves)


def test_a_row_without_weight_moves_nothing(rng):
    kernel = KERNELS["matern"]
    X, y = drawn(kernel, noise=0.1, N=60)
    ends = []
    for outlier in (0.0, 1e3):
        process, _ = make_process(X, y, kernel, H=4)
        process.model.m[7] = outlier
        process.model.s[7] = 1e30  # as a neighbour
        weight = np.ones(60)
        weight[7] = 0.0
        learn(process, kernel, weight=weight, steps=30)
        ends.append(np.r_[process.model.params, process.model.noise])
    np.testing.assert_allclose(*ends, rtol=1e-9)


@pytest.mark.parametrize("broken", ["params", "noise", "m"])
def test_leaving_the_finite_numbers_is_an_error(broken, rng):
    kernel = KERNELS["matern"]
    X = rng.normal(size=(40, 2))
    process, center = make_process(X, X[:, 0], kernel)
    getattr(process.model, broken)[:] = np.nan
    with pytest.raises(FloatingPointError, match="left the finite numbers"):
        learn(process, kernel, steps=2)
    with pytest.raises(FloatingPointError, match="left the finite numbers"):
        process.fit_noise(np.ones(40), np.random.RandomState(0))
    with pytest.raises(FloatingPointError, match="covariance matrix of neighbours"):
        process.predict_rows(X, center)


def test_tied_scales_keep_their_ratios():
    X, y = drawn(ConstantKernel(1.0) * Matern([0.5, 2.0], nu=1.5), noise=0.05, N=300)
    kernel = ConstantKernel(1.0) * Matern([3.0, 6.0], nu=1.5)
    process, _ = make_process(X, y, kernel, H=10)
    learn(process, kernel, tied=np.arange(2))
    short, long = process.model.params[:2]
    assert long / short == pytest.approx(2.0, rel=1e-9)
    assert short < 2.0


def test_rows_that_are_left_out_do_not_teach(rng):
    kernel = KERNELS["matern"]
    X, y = drawn(kernel, noise=0.1, N=60)
    far = X.copy()
    far[50:] += 1e6  # nobody's neighbours
    ends = []
    for factor in (1.0, 100.0):
        process, _ = make_process(far, np.r_[y[:50], factor * y[50:]], kernel, H=4)
        learn(process, kernel, rows=np.arange(50), steps=30)
        ends.append(np.r_[process.model.params, process.model.noise])
    np.testing.assert_array_equal(*ends)


def test_log_density_is_that_of_each_row_given_all_others():
    kernel = KERNELS["matern"]
    X, y = drawn(kernel, noise=0.05, N=40)
    process, _ = make_process(X, y, kernel, noise=0.05, H=39)
    inverse = np.linalg.inv(kernel(X) + 0.05 * np.eye(40))
    variance = 1.0 / np.diag(inverse)
    expected = norm.logpdf(inverse @ y * variance, scale=np.sqrt(variance))
    rows = np.array([3, 17, 4])
    np.testing.assert_allclose(process.log_density(rows), expected[rows], rtol=1e-9)


@pytest.mark.parametrize(("n_rows", "n_drawn"), [(10, 4), (10, 25), (1, 3)])
def test_rows_are_drawn_alike(n_rows, n_drawn):
    rows = draw_rows(np.arange(n_rows) + 5, n_drawn, np.random.RandomState(0))
    counts = np.bincount(rows - 5, minlength=n_rows)
    assert counts.sum() == n_drawn
    assert counts.max() - counts.min() <= 1
