"""Kriging from nearest data, and kernels learned by it."""

import numpy as np
import pytest
import reference
from helpers import assert_close, assert_derivatives, make_problem
from scipy.stats import norm
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern, WhiteKernel

from skswsgp import _kriging_cpu as loops
from skswsgp import _local
from skswsgp._covariance import refresh
from skswsgp._engine_cpu import make_gradients
from skswsgp._jit import launch, max_threads
from skswsgp._local import LocalProcess, draw_rows, learn_local, local_model
from skswsgp._program import compile_kernel
from skswsgp._state import make_work
from skswsgp.kernels import ArcCosine

KERNELS = {
    "matern": ConstantKernel(1.4) * Matern([0.8, 1.7], nu=1.5),
    "rbf-white": ConstantKernel(0.9) * RBF(1.2) + WhiteKernel(0.1),
    "arc-cosine": ArcCosine(1, 1.3, 0.7),
}


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
    grads = make_gradients(problem.model, 1, H)
    works = make_work(problem.model, H, n_threads)
    with launch(n_threads):
        loops.kriging_gradients(problem.model, batch, 0, n, works, grads)
    return grads


def predictions(problem, n_threads=1):
    """Return mu and F, each (n, Q)."""
    model, batch = problem.model, problem.batch
    mu, v = np.full((2, *batch.y.shape), np.nan, dtype=batch.X.dtype)
    works = make_work(model, batch.active.shape[1], n_threads)
    with launch(n_threads):
        loops.kriging_predictions(model, batch, works, mu, v)
    return mu, v


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
        refresh(there.model)
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
    model, center = local_model(X, y, weight, kernel, noise, "float64")
    return LocalProcess(model, H, n_threads), center


def learn(process, kernel, *, weight=None, steps=100, seed=0):
    model = process.model
    compiled = compile_kernel(kernel, model.Z.shape[1], model.Z.dtype)
    weight = np.ones(len(model.Z)) if weight is None else weight
    rng = np.random.RandomState(seed)
    return process.learn(compiled.free, compiled.log_bounds, weight, rng, steps)


def drawn(kernel, noise, N=600, seed=0):
    """Return X (N, 2), y (N,) of a Gaussian process."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, size=(N, 2))
    L = np.linalg.cholesky(kernel(X) + noise * np.eye(N))
    return X, L @ rng.normal(size=N)


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
    process.settle_noise(np.ones(600), np.random.RandomState(0))
    assert process.model.noise[0] == pytest.approx(0.05, rel=0.2)
    np.testing.assert_array_equal(process.model.params, params)


def test_settling_leaves_the_noise_where_it_is_best():
    kernel = KERNELS["matern"]
    X, y = drawn(kernel, noise=0.1, N=100)
    process, _ = make_process(X, y, kernel)
    weight = np.ones(100)
    densities = []
    for _ in range(3):
        process.settle_noise(weight, np.random.RandomState(0))
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
        process.settle_noise(np.ones(40), np.random.RandomState(0))
    with pytest.raises(FloatingPointError, match="covariance matrix of neighbours"):
        process.predict_rows(X, center)


# ---------------------------------------------------------------- learn_local


def learned(X, y, kernel=None, **options):
    options = {
        "weight": np.ones(len(X)),
        "noise_variance": 0.1,
        "n_threads": 1,
        "dtype": "float64",
        "rng": np.random.RandomState(0),
    } | options
    return learn_local(X, y.reshape(len(X), -1), kernel=kernel, **options)


@pytest.mark.parametrize("nu", [0.5, 2.5])
def test_the_smoothness_is_found(nu):
    X, y = drawn(ConstantKernel(1.0) * Matern([0.8, 1.6], nu=nu), noise=0.001)
    kernel, noise, curve = learned(X, y)
    assert kernel.k2.nu == nu
    assert noise.shape == (1,)
    assert len(curve) == _local.STEPS + _local.STEPS // 2


def test_a_kernel_of_the_user_keeps_its_form(rng):
    X, y = drawn(KERNELS["matern"], noise=0.1, N=100)
    given = ConstantKernel(1.0) * RBF([1.0, 1.0])
    kernel, noise, curve = learned(X, np.stack([y, rng.normal(size=100)], 1), given)
    assert given == ConstantKernel(1.0) * RBF([1.0, 1.0])
    assert type(kernel.k2) is RBF
    assert kernel != given
    assert noise.shape == (2,)
    assert noise[1] > 2 * noise[0]
    assert len(curve) == _local.STEPS + _local.STEPS // 2


@pytest.mark.parametrize("kernel", [None, RBF(2.0)], ids=["none", "given"])
def test_one_row_teaches_nothing(kernel):
    learned_kernel, noise, curve = learned(np.ones((1, 2)), np.zeros(1), kernel)
    assert kernel is None or learned_kernel == kernel
    np.testing.assert_array_equal(noise, [0.1])
    assert len(curve) == 0


def test_many_rows_are_sampled(monkeypatch):
    X, y = drawn(KERNELS["matern"], noise=0.1, N=200)
    sizes = []

    def counted(X, *args):
        sizes.append(len(np.unique(X, axis=0)))
        return local_model(X, *args)

    monkeypatch.setattr(_local, "local_model", counted)
    monkeypatch.setattr(_local, "POOL", 60)
    monkeypatch.setattr(_local, "STEPS", 8)
    learned(X, y)
    assert set(sizes) == {60}


@pytest.mark.parametrize(("n_rows", "n_drawn"), [(10, 4), (10, 25), (1, 3)])
def test_rows_are_drawn_alike(n_rows, n_drawn):
    rows = draw_rows(n_rows, n_drawn, np.random.RandomState(0))
    counts = np.bincount(rows, minlength=n_rows)
    assert counts.sum() == n_drawn
    assert counts.max() - counts.min() <= 1


def test_copies_count_as_weights(rng):
    X = rng.uniform(-2, 2, size=(80, 2))
    y = np.sin(2 * X[:, :1]) + 0.3 * rng.normal(size=(80, 1))
    count = np.ones(80)
    count[:30] = 2.0
    copied = np.r_[X, X[:30]], np.r_[y, y[:30]], np.ones(110)
    found = [
        learn_local(*rows, None, 0.1, 1, "float64", np.random.RandomState(0))
        for rows in ((X, y, count), copied)
    ]
    np.testing.assert_array_equal(found[0][0].theta, found[1][0].theta)
    np.testing.assert_array_equal(found[0][1], found[1][1])
    assert found[0][1][0] > 0.01  # a copy is no witness of little noise


def test_equal_rows_with_other_targets_are_no_copies(rng):
    X = np.repeat(np.arange(4.0), 40)[:, None]
    y = X + rng.choice([-1.0, 1.0], size=X.shape)
    X_left, y_left, weight = _local.merge_copies(X, y, np.ones(160))
    assert len(X_left) == len(y_left) == len(weight) == 160


@pytest.mark.parametrize("search", ["kd_tree", "pynndescent"])
def test_a_kernel_without_one_distance_is_scanned(search, rng):
    X = rng.normal(size=(40, 2))
    y = np.sin(X[:, :1])
    kernel = RBF([1.0, 2.0]) + Matern([2.0, 1.0])
    learn_local(
        X, y, np.ones(40), kernel, 0.1, 1, "float64", np.random.RandomState(0), search
    )


@pytest.mark.parametrize("pool", [1024, 70])
def test_learning_from_some_rows_of_x(rng, monkeypatch, pool):
    monkeypatch.setattr(_local, "POOL", pool)
    monkeypatch.setattr(_local, "NEIGHBORS", 5)
    X = rng.normal(size=(120, 2))
    rows = np.sort(rng.permutation(120)[:90])
    y, weight = np.sin(X[rows, :1]), rng.uniform(0.5, 2.0, 90)

    def found(X, **options):
        seed = np.random.RandomState(0)
        return learn_local(X, y, weight, None, 0.1, 1, "float64", seed, **options)

    some, copied = found(X, rows=rows), found(X[rows])
    np.testing.assert_array_equal(some[0].theta, copied[0].theta)
    np.testing.assert_array_equal(some[1], copied[1])


def test_learning_makes_no_graph(rng, monkeypatch):
    kinds = []

    class Recording(_local.NeighborSearch):
        def __init__(self, *args, **options):
            super().__init__(*args, **options)
            kinds.append(self.kind)

    monkeypatch.setattr(_local, "NeighborSearch", Recording)
    X = rng.normal(size=(100, 2))
    seed = np.random.RandomState(0)
    learn_local(
        X, X[:, :1], np.ones(100), RBF(1.0), 0.1, 1, "float64", seed, "pynndescent"
    )
    assert kinds and "pynndescent" not in kinds
